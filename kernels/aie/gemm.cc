// GEMM in bfloat16 with float32 sums, a tile (m, k) by a tile (k, n) at a time.
//
// m is a multiple of 4, n and k of 8; 64 each is what the designs take where they can. Tiles are in
// blocks, each block's elements side by side: a in (m / 4, k / 8) blocks of 4x8, b in (k / 8, n /
// 8) blocks of 8x8 by rows of k, y in (m / 4, n / 8) blocks of 4x8. b_col_maj takes b in (n / 8, k
// / 8) blocks of 8x8 by rows of n. sums is the kernel's own between calls, float32 in y's order.
// Accuracy against the reference: 0 ulp measured, 1 ulp with an epilogue; 2^-8 relative and 1e-6
// absolute are promised, for the order of the sums is the core's.
#include "functions.h"

namespace onnx_iron::aie_kernels {
namespace {

using Product = aie::mmul<4, 8, 8, bfloat16, bfloat16>;

// Blocks of the result at once, so that one's sum is in flight while another's is added to, and
// what is loaded serves several. block_of_b(row, column) loads the block of b that stands there, by
// rows of k.
template <int32_t Rows, int32_t Columns, typename BlockOfB>
void accumulate_blocks(const bfloat16* a, float* sums, int32_t i, int32_t j, int32_t across,
                       int32_t depth, BlockOfB&& block_of_b) {
  Product::accum_type sum[Rows][Columns];
  const auto place = [&](int32_t r, int32_t c) {
    return sums + ((i + r) * across + j + c) * Product::size_C;
  };
  for (int32_t r = 0; r < Rows; ++r) {
    for (int32_t c = 0; c < Columns; ++c) {
      sum[r][c] = Product::accum_type(aie::load_v<Product::size_C>(place(r, c)));
    }
  }
  for (int32_t l = 0; l < depth; ++l) {
    aie::vector<bfloat16, Product::size_B> b[Columns];
    for (int32_t c = 0; c < Columns; ++c) b[c] = block_of_b(l, j + c);
    for (int32_t r = 0; r < Rows; ++r) {
      const auto left = aie::load_v<Product::size_A>(a + ((i + r) * depth + l) * Product::size_A);
      for (int32_t c = 0; c < Columns; ++c) {
        Product product{sum[r][c]};
        product.mac(left, b[c]);
        sum[r][c] = product.to_accum();
      }
    }
  }
  for (int32_t r = 0; r < Rows; ++r) {
    for (int32_t c = 0; c < Columns; ++c) {
      aie::store_v(place(r, c), sum[r][c].template to_vector<float>());
    }
  }
}

template <int32_t Rows, typename BlockOfB>
void accumulate_rows(const bfloat16* a, float* sums, int32_t i, int32_t across, int32_t depth,
                     BlockOfB&& block_of_b) {
  int32_t j = 0;
  for (; j + 2 <= across; j += 2) {
    accumulate_blocks<Rows, 2>(a, sums, i, j, across, depth, block_of_b);
  }
  if (j < across) accumulate_blocks<Rows, 1>(a, sums, i, j, across, depth, block_of_b);
}

template <typename BlockOfB>
void accumulate(const bfloat16* a, float* sums, int32_t m, int32_t n, int32_t k,
                BlockOfB&& block_of_b) {
  const NearestEven rounding;
  const int32_t down = m / 4, depth = k / 8, across = n / 8;
  int32_t i = 0;
  for (; i + 2 <= down; i += 2) accumulate_rows<2>(a, sums, i, across, depth, block_of_b);
  if (i < down) accumulate_rows<1>(a, sums, i, across, depth, block_of_b);
}

template <typename F>
void finish(const float* sums, bfloat16* y, int32_t count, F&& epilogue) {
  const NearestEven rounding;
  for_vectors(count, [&](int32_t i) {
    aie::store_v(y + i, round<kLanes>(epilogue(aie::load_v<kLanes>(sums + i))));
  });
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void gemm_start_bf16(float* sums, int32_t count) {
  for_vectors(count, [&](int32_t i) { aie::store_v(sums + i, aie::zeros<float, kLanes>()); });
}

void gemm_bf16(const bfloat16* a, const bfloat16* b, float* sums, int32_t m, int32_t n, int32_t k) {
  const int32_t across = n / 8;
  accumulate(a, sums, m, n, k, [&](int32_t row, int32_t column) {
    return aie::load_v<Product::size_B>(b + (row * across + column) * Product::size_B);
  });
}

void gemm_b_col_maj_bf16(const bfloat16* a, const bfloat16* b, float* sums, int32_t m, int32_t n,
                         int32_t k) {
  const int32_t depth = k / 8;
  accumulate(a, sums, m, n, k, [&](int32_t row, int32_t column) {
    const bfloat16* block = b + (column * depth + row) * Product::size_B;
    return aie::transpose(aie::load_v<Product::size_B>(block), 8, 8);
  });
}

// count is a multiple of kLanes.
void gemm_finish_bf16(const float* sums, bfloat16* y, int32_t count) {
  finish(sums, y, count, [](const Floats<kLanes>& x) { return x; });
}
void gemm_finish_gelu_bf16(const float* sums, bfloat16* y, int32_t count) {
  finish(sums, y, count, gelu<kLanes>);
}
void gemm_finish_silu_bf16(const float* sums, bfloat16* y, int32_t count) {
  finish(sums, y, count, silu<kLanes>);
}
void gemm_finish_sigmoid_bf16(const float* sums, bfloat16* y, int32_t count) {
  finish(sums, y, count, sigmoid<kLanes>);
}
}

ONNX_IRON_KERNEL(gemm_start_bf16)
ONNX_IRON_KERNEL(gemm_bf16)
ONNX_IRON_KERNEL(gemm_b_col_maj_bf16)
ONNX_IRON_KERNEL(gemm_finish_bf16)
ONNX_IRON_KERNEL(gemm_finish_gelu_bf16)
ONNX_IRON_KERNEL(gemm_finish_silu_bf16)
ONNX_IRON_KERNEL(gemm_finish_sigmoid_bf16)
