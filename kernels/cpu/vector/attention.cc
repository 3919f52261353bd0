// Attention of a few query rows over one chunk of keys as it is in memory. A score is one
// accumulator of eight lanes over D; a row's exponentials are summed in 32 lanes, key j in
// lane j % 32; its values in ascending j. None of it depends on which other rows share the pass.
#include "kernels/cpu/vector/attention.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Rows of a cache that are asked for ahead of their use: one head's part of each may begin a page,
// where the hardware's own prefetching stops.
constexpr int64_t kAhead = 16;
constexpr int64_t kLineBytes = 64;

template <typename T>
ONNX_IRON_INLINE void prefetch(const T* row, int64_t width) {
  for (int64_t i = 0; i < width; i += kLineBytes / static_cast<int64_t>(sizeof(T))) {
    __builtin_prefetch(row + i);
  }
}

// Scores of `rows` query rows with `keys` keys to scores[r][0..].
template <int rows, int keys, typename T>
ONNX_IRON_INLINE void score(const float* query, int64_t query_stride, const T* key,
                            int64_t key_stride, int64_t width, float* scores) {
  F8 sums[rows][keys];
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < keys; ++j) sums[r][j] = zero();
  }
  for_eights(width, [&](int64_t i, auto load_key, auto) __attribute__((always_inline)) {
    F8 part[rows];
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) part[r] = load(query + r * query_stride + i);
#pragma GCC unroll 4
    for (int j = 0; j < keys; ++j) {
      const F8 same = load_key(key + j * key_stride + i);
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) sums[r][j] = fma(part[r], same, sums[r][j]);
    }
  });
  static_assert(keys == 1 || keys == 4);
  for (int r = 0; r < rows; ++r) {
    if constexpr (keys == 4) {
      sum_four(sums[r], scores + r * kAttentionChunk);
    } else {
      scores[r * kAttentionChunk] = sum(sums[r][0]);
    }
  }
}

template <int rows, typename T>
void score_all(const AttentionChunk& chunk, const float* query, int64_t begin, int64_t keys,
               float* scores) {
  constexpr int kTogether = 4;
  const T* key = static_cast<const T*>(chunk.key);
  const int64_t stride = padded(chunk.key_width);
  int64_t j = begin;
  for (; j + kTogether <= keys; j += kTogether) {
    const T* at = key + j * chunk.key_stride;
    for (int64_t next = kAhead; next < kAhead + kTogether && j + next < keys; ++next) {
      prefetch(at + next * chunk.key_stride, chunk.key_width);
    }
    score<rows, kTogether>(query, stride, at, chunk.key_stride, chunk.key_width, scores + j);
  }
  for (; j < keys; ++j) {
    score<rows, 1>(query, stride, key + j * chunk.key_stride, chunk.key_stride, chunk.key_width,
                   scores + j);
  }
}

// sums[r] += weights[r][j] * value[j] for j in from..to-1, over `vectors` eights from column c on.
template <int rows, int vectors, typename T, typename Load, typename Store>
ONNX_IRON_INLINE void weigh(const float* weights, const T* value, int64_t stride, int64_t from,
                            int64_t to, float* sums, int64_t sums_stride, Load&& load,
                            Store&& store) {
  F8 held[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) held[r][v] = load(sums + r * sums_stride + 8 * v);
  }
  for (int64_t j = from; j < to; ++j) {
    F8 factors[rows];
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) factors[r] = splat(weights[r * kAttentionChunk + j]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const F8 part = load(value + j * stride + 8 * v);
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) held[r][v] = fma(factors[r], part, held[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(sums + r * sums_stride + 8 * v, held[r][v]);
  }
}

template <int rows, typename T>
void weigh_all(const AttentionChunk& chunk, const float* weights, int64_t begin, int64_t end,
               float* sums) {
  constexpr int kVectors = 4;
  const T* value = static_cast<const T*>(chunk.value);
  const int64_t width = chunk.value_width, stride = attention_record(width);
  const auto whole_load = [](const auto* p) { return load(p); };
  const auto whole_store = [](float* p, F8 x) { store(p, x); };
  // A few values at a time, so that all their columns are still in the first-level cache.
  for (int64_t from = begin; from < end; from += kAhead) {
    const int64_t to = from + kAhead < end ? from + kAhead : end;
    for (int64_t j = to; j < to + kAhead && j < end; ++j) {
      prefetch(value + j * chunk.value_stride, width);
    }
    int64_t c = 0;
    for (; c + 8 * kVectors <= width; c += 8 * kVectors) {
      weigh<rows, kVectors>(weights, value + c, chunk.value_stride, from, to, sums + c, stride,
                            whole_load, whole_store);
    }
    for_eights(width - c, [&](int64_t i, auto load, auto store) {
      weigh<rows, 1>(weights, value + c + i, chunk.value_stride, from, to, sums + c + i, stride,
                     load, store);
    });
  }
}

template <int rows, typename T>
void run(const AttentionChunk& chunk, const float* query, const AttentionRow* seen,
         float* records) {
  alignas(64) float scores[rows * kAttentionChunk];
  int64_t begin = kAttentionChunk, end = 0;
  for (int r = 0; r < rows; ++r) {
    if (seen[r].first >= seen[r].last) continue;
    begin = seen[r].first < begin ? seen[r].first : begin;
    end = seen[r].last > end ? seen[r].last : end;
  }
  begin = begin < end ? begin : end;
  score_all<rows, T>(chunk, query, begin, end, scores);
  const int64_t width = padded(chunk.value_width), stride = attention_record(chunk.value_width);
  for (int r = 0; r < rows; ++r) {
    float* record = records + r * stride;
    weigh_scores(chunk, seen[r], begin / kLanes * kLanes, (end + kLanes - 1) / kLanes * kLanes,
                 scores + r * kAttentionChunk, record + width, record + width + 1);
    for (int64_t c = 0; c < width; ++c) record[c] = 0.0f;
  }
  weigh_all<rows, T>(chunk, scores, begin, end, records);
  for (int r = 0; r < rows; ++r) {
    float* record = records + r * stride;
    if (all_finite(record, width)) continue;
    // What a row does not see was multiplied by zero, and may hold anything.
    for (int64_t c = 0; c < width; ++c) record[c] = 0.0f;
    for (int64_t j = begin; j < end; ++j) {
      if (!is_seen(chunk, seen[r], j)) continue;
      weigh_all<1, T>(chunk, scores + r * kAttentionChunk, j, j + 1, record);
    }
  }
}

}  // namespace

template <typename T>
void attention(const AttentionChunk& chunk, const float* query, const AttentionRow* rows,
               int64_t count, float* records) {
  static_assert(kAttentionRows == 3);
  if (count == 3) return run<3, T>(chunk, query, rows, records);
  if (count == 2) return run<2, T>(chunk, query, rows, records);
  run<1, T>(chunk, query, rows, records);
}

void attention_fold(float* records, const float* further, int64_t count, int64_t width) {
  const int64_t whole = padded(width), stride = attention_record(width);
  for (int64_t first = 0; first < count; first += 8, records += 8 * stride, further += 8 * stride) {
    const int64_t rows = count - first < 8 ? count - first : 8;
    float old[8] = {}, added[8] = {};  // how far each largest score is below both
    for (int64_t r = 0; r < rows; ++r) {
      const float own = records[r * stride + whole], other = further[r * stride + whole];
      // Of an infinite one, a sink say, it is NaN, and so is the row.
      const float most = other > own ? other : own;
      old[r] = own - most;
      added[r] = other - most;
    }
    store(old, fast_exp(load(old)));
    store(added, fast_exp(load(added)));
    for (int64_t r = 0; r < rows; ++r) {
      float* to = records + r * stride;
      const float* from = further + r * stride;
      float *largest = to + whole, *total = largest + 1;
      if (from[whole] == kMinusInfinity) continue;  // of nothing
      if (*largest == kMinusInfinity) {
        std::memcpy(to, from, static_cast<size_t>(whole + 2) * sizeof(float));
        continue;
      }
      if (*largest < from[whole]) *largest = from[whole];
      *total = *total * old[r] + from[whole + 1] * added[r];
      const Wide by = all<Wide>(old[r]), further_by = all<Wide>(added[r]);
      for_wides(whole, [&](int64_t c, auto load, auto store) {
        store(to + c, add(mul(load(to + c), by), mul(load(from + c), further_by)));
      });
    }
  }
}

template <typename T>
void divide(const float* x, float by, void* out, int64_t n) {
  const Wide divisor = all<Wide>(by);
  T* to = static_cast<T*>(out);
  for_wides(n, [&](int64_t i, auto load, auto store) { store(to + i, div(load(x + i), divisor)); });
}

template void divide<float>(const float*, float, void*, int64_t);
template void divide<bf16>(const float*, float, void*, int64_t);
template void attention<float>(const AttentionChunk&, const float*, const AttentionRow*, int64_t,
                               float*);
template void attention<bf16>(const AttentionChunk&, const float*, const AttentionRow*, int64_t,
                              float*);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
