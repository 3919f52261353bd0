// Attention of many query rows over one packed chunk of keys. A score's eight sums over D, and the
// order in which they are added, are those of rows that take the chunk as it is in memory; so are
// the sums over the keys. Only what stands together in a register differs.
#include "kernels/cpu/vector/attention.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Rows at a time, with two vectors of keys or columns each: what the registers hold. Scores take
// half as many, for they have two sums each.
constexpr int kRows = kWide == 16 ? 12 : 6;
constexpr int kHalf = kRows / 2;
constexpr int kVectors = 2;
constexpr int kTogether = kVectors * kWide;
static_assert(kAttentionTile % kRows == 0 && kAttentionPack % kTogether == 0 &&
              kAttentionPack == kLanes);

// The last rows of a call go by this many.
constexpr int kLeast = kRows / 3;

template <int rows>
struct Sums {
  Wide v[rows][kVectors];
};

// Products of rows with kTogether keys, of two of the eight lanes of elements: lane l has the
// elements l, l + 8, ...
template <int rows>
ONNX_IRON_INLINE Sums<rows> two_lanes(const float* query, int64_t stride, const float* packed,
                                      int lane) {
  const int64_t steps = stride / 8;
  const float* from = query + lane;
  const float* one = packed + lane * steps * kAttentionPack;
  const float* other = one + 4 * steps * kAttentionPack;
  Sums<rows> sums, more;
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    sums.v[r][0] = sums.v[r][1] = more.v[r][0] = more.v[r][1] = all<Wide>(0.0f);
  }
  for (int64_t k = 0; k < steps; ++k) {
    const Wide low = wide_at(one + k * kAttentionPack);
    const Wide high = wide_at(one + k * kAttentionPack + kWide);
    const Wide further_low = wide_at(other + k * kAttentionPack);
    const Wide further_high = wide_at(other + k * kAttentionPack + kWide);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const Wide same = all<Wide>(from[r * stride + 8 * k]);
      sums.v[r][0] = fma(same, low, sums.v[r][0]);
      sums.v[r][1] = fma(same, high, sums.v[r][1]);
      const Wide further = all<Wide>(from[r * stride + 8 * k + 4]);
      more.v[r][0] = fma(further, further_low, more.v[r][0]);
      more.v[r][1] = fma(further, further_high, more.v[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    sums.v[r][0] = add(sums.v[r][0], more.v[r][0]);
    sums.v[r][1] = add(sums.v[r][1], more.v[r][1]);
  }
  return sums;
}

template <int rows>
ONNX_IRON_INLINE Sums<rows> add(const Sums<rows>& a, const Sums<rows>& b) {
  Sums<rows> sums;
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    sums.v[r][0] = add(a.v[r][0], b.v[r][0]);
    sums.v[r][1] = add(a.v[r][1], b.v[r][1]);
  }
  return sums;
}

// Products of rows with kTogether keys. The eight lanes' sums are added as
// ((0+4)+(2+6)) + ((1+5)+(3+7)).
template <int rows>
void score(const float* query, int64_t stride, const float* packed, float* scores) {
  Sums<rows> even = two_lanes<rows>(query, stride, packed, 0);
  even = add(even, two_lanes<rows>(query, stride, packed, 2));
  Sums<rows> odd = two_lanes<rows>(query, stride, packed, 1);
  odd = add(odd, two_lanes<rows>(query, stride, packed, 3));
  even = add(even, odd);
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    keep(scores + r * kAttentionChunk, even.v[r][0]);
    keep(scores + r * kAttentionChunk + kWide, even.v[r][1]);
  }
}

// records[r] = weights[r] @ values, of kTogether columns, or of the `columns` that a record has.
template <int rows>
void multiply(const float* weights, const float* values, int64_t keys, float* records,
              int64_t stride, int64_t columns) {
  Wide held[rows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) held[r][0] = held[r][1] = all<Wide>(0.0f);
  for (int64_t j = 0; j < keys; ++j) {
    const Wide low = wide_at(values + j * kAttentionPack);
    const Wide high = wide_at(values + j * kAttentionPack + kWide);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const Wide same = all<Wide>(weights[r * kAttentionChunk + j]);
      held[r][0] = fma(same, low, held[r][0]);
      held[r][1] = fma(same, high, held[r][1]);
    }
  }
  if (columns >= kTogether) {
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      keep(records + r * stride, held[r][0]);
      keep(records + r * stride + kWide, held[r][1]);
    }
    return;
  }
  for (int r = 0; r < rows; ++r) {
    float whole[kTogether];
    keep(whole, held[r][0]);
    keep(whole + kWide, held[r][1]);
    for (int64_t c = 0; c < columns; c += 8) store(records + r * stride + c, load(whole + c));
  }
}

// Those of `count` rows with kTogether keys.
void score_all(const float* query, int64_t stride, const float* packed, int64_t count,
               float* scores) {
  for (int64_t r = 0; r < count;) {
    const int64_t left = count - r;
    const float* from = query + r * stride;
    float* to = scores + r * kAttentionChunk;
    if (left <= kLeast || (left > kHalf && left <= 2 * kLeast)) {
      score<kLeast>(from, stride, packed, to);
      r += kLeast;
    } else {
      score<kHalf>(from, stride, packed, to);
      r += kHalf;
    }
  }
}

void weigh_all(const float* weights, const float* packed, int64_t begin, int64_t end, int64_t count,
               int64_t width, float* records) {
  const int64_t record = attention_record(width);
  for (int64_t column = 0; column < padded(width); column += kTogether) {
    const float* values = packed + column / kAttentionPack * kAttentionPack * kAttentionChunk +
                          column % kAttentionPack + begin * kAttentionPack;
    for (int64_t r = 0; r < count; r += kRows) {
      const int64_t left = count - r;
      const auto some = left <= kLeast       ? multiply<kLeast>
                        : left <= 2 * kLeast ? multiply<2 * kLeast>
                                             : multiply<kRows>;
      some(weights + r * kAttentionChunk + begin, values, end - begin,
           records + r * record + column, record, padded(width) - column);
    }
  }
}

// A row whose sums are not finite: what it does not see was multiplied by zero, and may hold
// anything.
void weigh_seen(const AttentionChunk& chunk, const AttentionRow& row, const float* weights,
                const float* packed, int64_t begin, int64_t end, float* record) {
  for (int64_t c = 0; c < padded(chunk.value_width); c += 8) {
    const float* values =
        packed + c / kAttentionPack * kAttentionPack * kAttentionChunk + c % kAttentionPack;
    F8 sums = zero();
    for (int64_t j = begin; j < end; ++j) {
      if (!is_seen(chunk, row, j)) continue;
      sums = fma(splat(weights[j]), load(values + j * kAttentionPack), sums);
    }
    store(record + c, sums);
  }
}

}  // namespace

void attention_tile(const AttentionChunk& chunk, const float* packed_keys,
                    const float* packed_values, const float* query, const AttentionRow* rows,
                    int64_t count, float* records) {
  alignas(64) float scores[(kAttentionTile + kHalf) * kAttentionChunk];
  int64_t begin = kAttentionChunk, end = 0;
  for (int64_t r = 0; r < count; ++r) {
    if (rows[r].first >= rows[r].last) continue;
    begin = rows[r].first < begin ? rows[r].first : begin;
    end = rows[r].last > end ? rows[r].last : end;
  }
  begin = (begin < end ? begin : end) / kLanes * kLanes;
  end = (end + kLanes - 1) / kLanes * kLanes;
  const int64_t stride = padded(chunk.key_width);
  for (int64_t j = begin; j < end; j += kTogether) {
    const float* keys = packed_keys + j / kAttentionPack * kAttentionPack * stride;
    score_all(query, stride, keys + j % kAttentionPack, count, scores + j);
  }
  const int64_t width = padded(chunk.value_width), record = attention_record(chunk.value_width);
  float tails[kAttentionTile][2];
  for (int64_t r = 0; r < count; ++r) {
    weigh_scores(chunk, rows[r], begin, end, scores + r * kAttentionChunk, &tails[r][0],
                 &tails[r][1]);
  }
  weigh_all(scores, packed_values, begin, end, count, chunk.value_width, records);
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(records + r * record + width, tails[r], sizeof tails[r]);
    if (all_finite(records + r * record, width)) continue;
    weigh_seen(chunk, rows[r], scores + r * kAttentionChunk, packed_values, begin, end,
               records + r * record);
  }
}

template <typename T>
void attention_pack(const AttentionChunk& chunk, int64_t keys, float* packed_keys,
                    float* packed_values) {
  const T* key = static_cast<const T*>(chunk.key);
  const int64_t steps = padded(chunk.key_width) / 8;
  const int64_t read = (keys + kAttentionPack - 1) / kAttentionPack * kAttentionPack;
  for (int64_t j = 0; j < read; j += 8) {
    float* block = packed_keys + j / kAttentionPack * kAttentionPack * padded(chunk.key_width) +
                   j % kAttentionPack;
    for_eights(chunk.key_width, [&](int64_t i, auto load_part, auto) {
      F8 part[8];
      for (int r = 0; r < 8; ++r) {
        part[r] = j + r < keys ? load_part(key + (j + r) * chunk.key_stride + i) : zero();
      }
      turn(part);
      // Element i + l of each key is step i / 8 of lane l.
      for (int l = 0; l < 8; ++l) store(block + (l * steps + i / 8) * kAttentionPack, part[l]);
    });
  }
  const T* value = static_cast<const T*>(chunk.value);
  const int64_t whole = attention_packed_values(chunk.value_width) / kAttentionChunk;
  for (int64_t column = 0; column < whole; column += kAttentionPack) {
    float* block = packed_values + column * kAttentionChunk;
    const int64_t width =
        chunk.value_width - column < kAttentionPack ? chunk.value_width - column : kAttentionPack;
    for (int64_t j = 0; j < read; ++j) {
      float* to = block + j * kAttentionPack;
      if (j >= keys || width < kAttentionPack) {
        for (int64_t c = 0; c < kAttentionPack; c += 8) store(to + c, zero());
      }
      if (j >= keys) continue;
      const T* from = value + j * chunk.value_stride + column;
      for_eights(width,
                 [&](int64_t c, auto load_part, auto) { store(to + c, load_part(from + c)); });
    }
  }
}

template void attention_pack<float>(const AttentionChunk&, int64_t, float*, float*);
template void attention_pack<bf16>(const AttentionChunk&, int64_t, float*, float*);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
