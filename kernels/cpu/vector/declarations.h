// Declarations of the loops, one template for both dtypes; table.cc puts them in order.
#pragma once

#include "kernels/cpu/loops.h"
#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// What one call of gemm computes at most, in rows of b, and the rows of a that gemm_row_major takes
// at once.
#if defined(__AVX512F__)
inline constexpr int kTileColumns = 16;
inline constexpr int kRowMajorGroup = 12;
#else
inline constexpr int kTileColumns = 8;
inline constexpr int kRowMajorGroup = 6;
#endif

template <typename T>
void widen(const void* x, float* out, int64_t n);
template <typename T>
void narrow(const float* x, void* out, int64_t n);
template <typename T>
void divide(const float* x, float by, void* out, int64_t n);
template <typename T>
void rms_norm(const void* x, const void* weight, void* out, int64_t rows, int64_t width,
              float epsilon);
template <typename T>
void layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t rows,
                int64_t width, float epsilon);
template <typename T>
void softmax(const void* x, void* out, int64_t rows, int64_t width);
template <typename T>
void log_softmax(const void* x, void* out, int64_t rows, int64_t width);
template <typename T>
void reduce(const void* x, void* out, int64_t rows, int64_t width, bool mean);
template <typename T>
void rope(const void* x, const void* angles, bool float_angles, void* out, int64_t width,
          bool interleaved);
template <typename T>
void causal_conv1d(const ConvShape& shape, const void* x, const void* taps, const void* state,
                   const void* bias, void* y, int64_t begin, int64_t end, int64_t first,
                   int64_t last);
template <typename T>
void selective_scan(const ScanShape& shape, const ScanOperands& operands, int64_t rows,
                    int64_t begin, int64_t end);
template <typename T>
void linear_attention(const LinearAttentionShape& shape, const LinearAttentionOperands& operands,
                      int64_t rows, int64_t head, int64_t column);
template <typename T>
void widened_exp(const void* x, float* out, int64_t n);
template <typename T>
void gemv(const void* w, const float* x, void* out, int64_t k, int64_t begin, int64_t end,
          UnaryLoop epilogue);
template <typename T>
void pack(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end);
template <typename T>
void gemm(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
          int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue);
#if defined(__AVX512BF16__)
template <>
void pack<bf16>(const void*, float*, int64_t, int64_t, int64_t, int64_t);
template <>
void gemm<bf16>(const float*, const void*, void*, int64_t, int64_t, int64_t, int64_t, int64_t,
                int64_t, UnaryLoop);
#endif
template <typename T>
void gemm_codes(const float* packed, const Codes& codes, void* out, int64_t m, int64_t n, int64_t k,
                int64_t group, int64_t group_end, int64_t column);
template <typename T>
void decode(const Codes& codes, int64_t row, int64_t k, void* out);
template <typename T>
void gemv_row_major(const float* x, const void* b, void* out, int64_t n, int64_t k, int64_t begin,
                    int64_t end, UnaryLoop epilogue);
template <typename T>
void pack_rows(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end);
template <typename T>
void gemm_row_major(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                    int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue);
template <typename T>
void attention(const AttentionChunk& chunk, const float* query, const AttentionRow* rows,
               int64_t count, float* records);
template <typename T>
void attention_pack(const AttentionChunk& chunk, int64_t keys, float* packed_keys,
                    float* packed_values);

void attention_tile(const AttentionChunk& chunk, const float* packed_keys,
                    const float* packed_values, const float* query, const AttentionRow* rows,
                    int64_t count, float* records);
void attention_fold(float* records, const float* further, int64_t count, int64_t width);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
