// Eight lanes of float64: AVX-512 or AVX2 where the source is compiled for it, the compiler's own
// vectors elsewhere.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

#if defined(__AVX2__)

#if defined(__AVX512F__)

struct D8 {
  __m512d v;
};

ONNX_IRON_INLINE D8 to_double(F8 x) { return {_mm512_cvtps_pd(x.v)}; }
ONNX_IRON_INLINE F8 to_float(D8 x) { return {_mm512_cvtpd_ps(x.v)}; }
ONNX_IRON_INLINE D8 splat_double(double x) { return {_mm512_set1_pd(x)}; }
ONNX_IRON_INLINE void store(double* p, D8 x) { _mm512_storeu_pd(p, x.v); }
ONNX_IRON_INLINE D8 load_double(const double* p) { return {_mm512_loadu_pd(p)}; }
ONNX_IRON_INLINE D8 add(D8 a, D8 b) { return {_mm512_add_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 sub(D8 a, D8 b) { return {_mm512_sub_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 mul(D8 a, D8 b) { return {_mm512_mul_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 div(D8 a, D8 b) { return {_mm512_div_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 fma(D8 a, D8 b, D8 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
ONNX_IRON_INLINE D8 larger(D8 a, D8 b) { return {_mm512_max_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 smaller(D8 a, D8 b) { return {_mm512_min_pd(a.v, b.v)}; }
ONNX_IRON_INLINE D8 where_less(D8 a, D8 b, D8 yes, D8 no) {
  return {_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
ONNX_IRON_INLINE D8 absolute(D8 x) { return {_mm512_abs_pd(x.v)}; }
// 2**n, n the integer that `biased` = n + 1.5 * 2**52 holds in its low bits; n in -1023 (which
// gives 0) to 1024 (infinity).
ONNX_IRON_INLINE D8 power_of_two(D8 biased) {
  const __m512i n = _mm512_add_epi64(_mm512_castpd_si512(biased.v), _mm512_set1_epi64(1023));
  return {_mm512_castsi512_pd(_mm512_slli_epi64(n, 52))};
}

#else

struct D8 {
  __m256d low, high;
};

ONNX_IRON_INLINE D8 to_double(F8 x) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(x.v)),
          _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1))};
}
ONNX_IRON_INLINE F8 to_float(D8 x) {
  return {_mm256_set_m128(_mm256_cvtpd_ps(x.high), _mm256_cvtpd_ps(x.low))};
}
ONNX_IRON_INLINE D8 splat_double(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
ONNX_IRON_INLINE void store(double* p, D8 x) {
  _mm256_storeu_pd(p, x.low);
  _mm256_storeu_pd(p + 4, x.high);
}
ONNX_IRON_INLINE D8 load_double(const double* p) {
  return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)};
}
ONNX_IRON_INLINE D8 add(D8 a, D8 b) {
  return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 sub(D8 a, D8 b) {
  return {_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 mul(D8 a, D8 b) {
  return {_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 div(D8 a, D8 b) {
  return {_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 fma(D8 a, D8 b, D8 c) {
  return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
}
ONNX_IRON_INLINE D8 larger(D8 a, D8 b) {
  return {_mm256_max_pd(a.low, b.low), _mm256_max_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 smaller(D8 a, D8 b) {
  return {_mm256_min_pd(a.low, b.low), _mm256_min_pd(a.high, b.high)};
}
ONNX_IRON_INLINE D8 where_less(D8 a, D8 b, D8 yes, D8 no) {
  return {_mm256_blendv_pd(no.low, yes.low, _mm256_cmp_pd(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_pd(no.high, yes.high, _mm256_cmp_pd(a.high, b.high, _CMP_LT_OQ))};
}
ONNX_IRON_INLINE D8 absolute(D8 x) {
  const __m256d sign = _mm256_set1_pd(-0.0);
  return {_mm256_andnot_pd(sign, x.low), _mm256_andnot_pd(sign, x.high)};
}
// 2**n, n the integer that `biased` = n + 1.5 * 2**52 holds in its low bits; n in -1023 (which
// gives 0) to 1024 (infinity).
ONNX_IRON_INLINE D8 power_of_two(D8 biased) {
  const __m256i bias = _mm256_set1_epi64x(1023);
  const __m256i low = _mm256_add_epi64(_mm256_castpd_si256(biased.low), bias);
  const __m256i high = _mm256_add_epi64(_mm256_castpd_si256(biased.high), bias);
  return {_mm256_castsi256_pd(_mm256_slli_epi64(low, 52)),
          _mm256_castsi256_pd(_mm256_slli_epi64(high, 52))};
}

#endif

#else

typedef double DoubleLanes __attribute__((vector_size(64)));
typedef uint64_t UnsignedLongLanes __attribute__((vector_size(64)));

struct D8 {
  DoubleLanes v;
};

ONNX_IRON_INLINE D8 to_double(F8 x) { return {__builtin_convertvector(x.v, DoubleLanes)}; }
ONNX_IRON_INLINE F8 to_float(D8 x) { return {__builtin_convertvector(x.v, FloatLanes)}; }
ONNX_IRON_INLINE D8 splat_double(double x) { return {DoubleLanes{x, x, x, x, x, x, x, x}}; }
ONNX_IRON_INLINE void store(double* p, D8 x) { std::memcpy(p, &x, sizeof x); }
ONNX_IRON_INLINE D8 load_double(const double* p) {
  D8 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ONNX_IRON_INLINE D8 add(D8 a, D8 b) { return {a.v + b.v}; }
ONNX_IRON_INLINE D8 sub(D8 a, D8 b) { return {a.v - b.v}; }
ONNX_IRON_INLINE D8 mul(D8 a, D8 b) { return {a.v * b.v}; }
ONNX_IRON_INLINE D8 div(D8 a, D8 b) { return {a.v / b.v}; }
ONNX_IRON_INLINE D8 fma(D8 a, D8 b, D8 c) { return {a.v * b.v + c.v}; }
ONNX_IRON_INLINE D8 larger(D8 a, D8 b) { return {a.v > b.v ? a.v : b.v}; }
ONNX_IRON_INLINE D8 smaller(D8 a, D8 b) { return {a.v < b.v ? a.v : b.v}; }
ONNX_IRON_INLINE D8 where_less(D8 a, D8 b, D8 yes, D8 no) { return {a.v < b.v ? yes.v : no.v}; }
ONNX_IRON_INLINE D8 absolute(D8 x) {
  return {bits_as<DoubleLanes>(bits_as<UnsignedLongLanes>(x.v) & 0x7fffffffffffffffu)};
}
// 2**n, n the integer that `biased` = n + 1.5 * 2**52 holds in its low bits; n in -1023 (which
// gives 0) to 1024 (infinity).
ONNX_IRON_INLINE D8 power_of_two(D8 biased) {
  return {bits_as<DoubleLanes>((bits_as<UnsignedLongLanes>(biased.v) + 1023u) << 52)};
}

#endif

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
