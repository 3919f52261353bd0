// Tiles of a (M, K) by b (N, K) transposed. Each output has one accumulator of eight lanes, element
// k in lane k % 8, fma in ascending k, as in gemv.cc: a row's bits do not depend on the other rows.
// Along K a tile goes in blocks that stay in the first-level cache, accumulators kept between them.
// AVX-512 has the lanes of two outputs in one register, and so the bits of AVX2.
#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/epilogue.h"
#include "kernels/cpu/vector/tile_sums.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

constexpr int kRows = kGroupRows;
// Rows of b that meet a group of rows of a: as many accumulators as leave registers for operands.
#if defined(__AVX512F__)
constexpr int kColumns = kSumColumns;
// Eights of K in a block: a panel of b takes 24 KB.
constexpr int64_t kBlockSteps = 48;
#else
constexpr int kColumns = 4;
// A panel of b takes 12 KB, a group of a 9 KB.
constexpr int64_t kBlockSteps = 96;
#endif
constexpr int kPanels = kTileColumns / kColumns;
constexpr int kGroups = kTileRows / kRows;

// Interleaves rows first.. of x, of `width` elements, from eight `from` to `to` of each row; rows
// from `rows` on are zeros.
template <int height, typename T>
ONNX_IRON_INLINE void interleave(const T* x, int64_t first, int64_t rows, int64_t width,
                                 int64_t from, int64_t to, float* out) {
  for (int64_t r = 0; r < height; ++r) {
    float* at = out + 8 * r;
    if (first + r >= rows) {
      for (int64_t s = from; s < to; ++s, at += 8 * height) store(at, zero());
      continue;
    }
    const T* row = x + (first + r) * width;
    int64_t s = from;
    for (; s < to && 8 * s + 8 <= width; ++s, at += 8 * height) store(at, load(row + 8 * s));
    if (s < to) store(at, load_part(row + 8 * s, width - 8 * s));
  }
}

#if defined(__AVX512F__)

using Sums = TileSums<kRows>;

// sums[r][c] += a[r] * b[c], eight lanes each, over `steps` eights.
ONNX_IRON_INLINE void multiply(const float* a, const float* b, int64_t steps, Sums& sums) {
  for (int64_t s = 0; s < steps; ++s, a += 8 * kRows, b += 8 * kColumns) {
    __m512 rows[kRows];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) rows[r] = _mm512_broadcast_f32x8(load(a + 8 * r).v);
#pragma GCC unroll 8
    for (int c = 0; c < kColumns / 2; ++c) {
      const __m512 columns = in_register(_mm512_loadu_ps(b + 16 * c));
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        sums.v[r][c] = _mm512_fmadd_ps(rows[r], columns, sums.v[r][c]);
      }
    }
  }
}

#else

struct Sums {
  F8 v[kRows][kColumns] = {};
};

// sums[r][c] += a[r] * b[c], eight lanes each, over `steps` eights.
ONNX_IRON_INLINE void multiply(const float* a, const float* b, int64_t steps, Sums& sums) {
  for (int64_t s = 0; s < steps; ++s, a += 8 * kRows, b += 8 * kColumns) {
    F8 rows[kRows];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) rows[r] = load(a + 8 * r);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const F8 column = load(b + 8 * c);
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) sums.v[r][c] = fma(rows[r], column, sums.v[r][c]);
    }
  }
}

ONNX_IRON_INLINE void finish_row(const Sums& sums, int r, float* out) { sum_four(sums.v[r], out); }

#endif

// b a matrix (N, K), that gives its rows as interleave does.
template <typename T>
struct Plain {
  const T* elements;
  int64_t n, k;

  template <int height>
  void fill(int64_t first, int64_t from, int64_t to, float* out) const {
    interleave<height>(elements, first, n, k, from, to, out);
  }
  void ask(int64_t first, int64_t from, int64_t to, int64_t part, int64_t parts) const {
#if defined(__AVX512F__)
    const int64_t eight = 8 * static_cast<int64_t>(sizeof(T));
    ask_for_rows(elements, k * eight / 8, first, from * eight, to * eight, part, parts);
#else
    (void)first, (void)from, (void)to, (void)part, (void)parts;
#endif
  }
};

// b in codes, which are few bytes.
template <typename T>
struct Coded {
  const Codes& codes;
  int64_t n, k;

  template <int height>
  void fill(int64_t first, int64_t from, int64_t to, float* out) const {
    if (codes.bits == 4) {
      fill_rows<height, 4>(first, from, to, out);
    } else {
      fill_rows<height, 8>(first, from, to, out);
    }
  }
  template <int height, int bits>
  void fill_rows(int64_t first, int64_t from, int64_t to, float* out) const {
    for (int64_t r = 0; r < height; ++r) {
      int64_t done = from;
#if defined(__AVX512F__)
      if (first + r / 2 * 2 + 1 < n) {
        done = to * 8 <= k ? to : k / 8;
        if (r % 2 == 0) {
          const auto keep = [&](int64_t s, __m512 pair) __attribute__((always_inline)) {
            _mm512_store_ps(out + (s - from) * 8 * height + 8 * r, pair);
          };
          for_decoded_pairs<T, bits>(codes, first + r, from, done, keep);
        }
      }
#endif
      const auto keep = [&](int64_t s, F8 eight) __attribute__((always_inline)) {
        store(out + (s - from) * 8 * height + 8 * r, eight);
      };
      if (first + r < n) {
        for_decoded<T, bits>(codes, first + r, k, done, to, keep);
      } else {
        for (int64_t s = from; s < to; ++s) keep(s, zero());
      }
    }
  }
  void ask(int64_t, int64_t, int64_t, int64_t, int64_t) const {}
};

template <typename T, typename Matrix>
void multiply_tile(const float* packed, const Matrix& b, void* out, int64_t m, int64_t n, int64_t k,
                   int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue) {
  alignas(64) float panels[kPanels][kBlockSteps * 8 * kColumns];
  // Not set before it is used: only what a block leaves to the next is ever read.
  alignas(64) std::byte kept[kGroups][kPanels][sizeof(Sums)];
  float tile[kTileRows][kTileColumns];
  const int64_t steps = padded(k) / 8;
  const int64_t blocks = steps <= kBlockSteps ? 1 : (steps + kBlockSteps - 1) / kBlockSteps;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t from = steps * block / blocks, to = steps * (block + 1) / blocks;
    for (int panel = 0; panel < kPanels; ++panel) {
      b.template fill<kColumns>(column + panel * kColumns, from, to, panels[panel]);
    }
    for (int64_t g = group; g < group_end; ++g) {
      const float* rows = packed + g * group_floats(k) + from * 8 * kRows;
      const int64_t next = block + 1 < blocks ? to : 0;
      const int64_t next_end = next + to - from < steps ? next + to - from : steps;
      b.ask(next > 0 ? column : column + kTileColumns, next, next_end, g - group,
            group_end - group);
      for (int panel = 0; panel < kPanels; ++panel) {
        Sums sums;
        std::byte* held = kept[g - group][panel];
        if (block > 0) std::memcpy(&sums, held, sizeof(Sums));
        multiply(rows, panels[panel], to - from, sums);
        if (block + 1 < blocks) {
          std::memcpy(held, &sums, sizeof(Sums));
        } else {
          for (int r = 0; r < kRows; ++r) {
            finish_row(sums, r, &tile[(g - group) * kRows + r][panel * kColumns]);
          }
        }
      }
    }
  }
  T* to = static_cast<T*>(out);
  const int64_t columns = n - column < kTileColumns ? n - column : kTileColumns;
  for (int64_t row = group * kRows; row < group_end * kRows && row < m; ++row) {
    finish(epilogue, tile[row - group * kRows], to + row * n + column, columns);
  }
}

}  // namespace

template <typename T>
void pack(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end) {
  const int64_t steps = padded(k) / 8;
  for (int64_t group = begin; group < end; ++group) {
    interleave<kRows>(static_cast<const T*>(a), group * kRows, m, k, 0, steps,
                      packed + group * group_floats(k));
  }
}

template <typename T>
void gemm(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
          int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue) {
  const Plain<T> matrix{static_cast<const T*>(b), n, k};
  multiply_tile<T>(packed, matrix, out, m, n, k, group, group_end, column, epilogue);
}

template <typename T>
void gemm_codes(const float* packed, const Codes& codes, void* out, int64_t m, int64_t n, int64_t k,
                int64_t group, int64_t group_end, int64_t column) {
  const Coded<T> matrix{codes, n, k};
  multiply_tile<T>(packed, matrix, out, m, n, k, group, group_end, column, nullptr);
}

template void pack<float>(const void*, float*, int64_t, int64_t, int64_t, int64_t);
template void gemm<float>(const float*, const void*, void*, int64_t, int64_t, int64_t, int64_t,
                          int64_t, int64_t, UnaryLoop);
template void gemm_codes<float>(const float*, const Codes&, void*, int64_t, int64_t, int64_t,
                                int64_t, int64_t, int64_t);
template void gemm_codes<bf16>(const float*, const Codes&, void*, int64_t, int64_t, int64_t,
                               int64_t, int64_t, int64_t);
#if !defined(__AVX512BF16__)
template void pack<bf16>(const void*, float*, int64_t, int64_t, int64_t, int64_t);
template void gemm<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t, int64_t,
                         int64_t, int64_t, UnaryLoop);
#endif

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
