// As many lanes of float32 as the instruction set has in one register: sixteen with AVX-512, else
// eight.
#pragma once

#include <type_traits>

#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

#if defined(__AVX512F__)

struct Wide {
  __m512 v;
};
inline constexpr int kWide = 16;

ONNX_IRON_INLINE Wide wide_at(const float* p) { return {_mm512_loadu_ps(p)}; }
ONNX_IRON_INLINE void keep(float* p, Wide x) { _mm512_storeu_ps(p, x.v); }
ONNX_IRON_INLINE Wide wide_at(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
ONNX_IRON_INLINE void keep(bf16* p, Wide x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN)),
                                      _mm512_set1_epi32(0x7fc00000));
  const __m512i rounded =
      _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), up, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
// Fewer than all lanes; those from n on are zero.
ONNX_IRON_INLINE Wide part_at(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p)};
}
ONNX_IRON_INLINE void keep_part(float* p, Wide x, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x.v);
}
ONNX_IRON_INLINE Wide keep_below(Wide x, int64_t n) {
  return {_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << n) - 1), x.v)};
}
ONNX_IRON_INLINE Wide part_at(const bf16* p, int64_t n) {
  bf16 lanes[16] = {};
  for (int64_t i = 0; i < n && i < 16; ++i) lanes[i] = p[i];
  return wide_at(lanes);
}
ONNX_IRON_INLINE void keep_part(bf16* p, Wide x, int64_t n) {
  bf16 lanes[16];
  keep(lanes, x);
  for (int64_t i = 0; i < n && i < 16; ++i) p[i] = lanes[i];
}
ONNX_IRON_INLINE Wide add(Wide a, Wide b) { return {_mm512_add_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide sub(Wide a, Wide b) { return {_mm512_sub_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide div(Wide a, Wide b) { return {_mm512_div_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide mul(Wide a, Wide b) { return {_mm512_mul_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide fma(Wide a, Wide b, Wide c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// b where a or b is a NaN.
ONNX_IRON_INLINE Wide larger(Wide a, Wide b) { return {_mm512_max_ps(a.v, b.v)}; }
// a * b - c and c - a * b, rounded once.
ONNX_IRON_INLINE Wide fms(Wide a, Wide b, Wide c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }
ONNX_IRON_INLINE Wide fnma(Wide a, Wide b, Wide c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
ONNX_IRON_INLINE Wide smaller(Wide a, Wide b) { return {_mm512_min_ps(a.v, b.v)}; }
// -|x|.
ONNX_IRON_INLINE Wide below_zero(Wide x) { return {_mm512_or_ps(x.v, _mm512_set1_ps(-0.0f))}; }
// x >= 0 with y's sign.
ONNX_IRON_INLINE Wide with_sign_of(Wide x, Wide y) {
  return {_mm512_or_ps(x.v, _mm512_and_ps(y.v, _mm512_set1_ps(-0.0f)))};
}
// yes where a < b, else no.
ONNX_IRON_INLINE Wide where_less(Wide a, Wide b, Wide yes, Wide no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// As of eight lanes.
ONNX_IRON_INLINE Wide power_of_two(Wide biased) {
  const __m512i n = _mm512_add_epi32(_mm512_castps_si512(biased.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
// x * 2**n, rounded once, n being `biased` less 1.5 * 2**23, in -252..254.
ONNX_IRON_INLINE Wide scaled(Wide x, Wide, Wide n) { return {_mm512_scalef_ps(x.v, n.v)}; }
// 0 where x < lowest, else part * 2**n, n being `biased` less 1.5 * 2**23, and the result no
// subnormal number.
ONNX_IRON_INLINE Wide unless_less(Wide x, Wide lowest, Wide part, Wide, Wide n) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, lowest.v, _CMP_NLT_UQ), part.v, n.v)};
}
// The eights in a Wide, in order, added to eight sums.
ONNX_IRON_INLINE F8 add_eights(F8 sums, Wide x) {
  sums = add(sums, F8{_mm512_castps512_ps256(x.v)});
  return add(sums, F8{_mm512_extractf32x8_ps(x.v, 1)});
}
ONNX_IRON_INLINE F8 add_halves(Wide x) {
  return add(F8{_mm512_castps512_ps256(x.v)}, F8{_mm512_extractf32x8_ps(x.v, 1)});
}
// The sum of 32 lanes in rows.h's order.
ONNX_IRON_INLINE float sum_lanes(const Wide (&x)[2]) {
  return sum(add(add_halves(x[0]), add_halves(x[1])));
}
// The larger of the eights.
ONNX_IRON_INLINE F8 larger_half(Wide x) {
  return larger(F8{_mm512_castps512_ps256(x.v)}, F8{_mm512_extractf32x8_ps(x.v, 1)});
}

#else

using Wide = F8;
inline constexpr int kWide = 8;

template <typename T>
ONNX_IRON_INLINE Wide wide_at(const T* p) {
  return load(p);
}
template <typename T>
ONNX_IRON_INLINE void keep(T* p, Wide x) {
  store(p, x);
}
template <typename T>
ONNX_IRON_INLINE Wide part_at(const T* p, int64_t n) {
  return load_part(p, n);
}
template <typename T>
ONNX_IRON_INLINE void keep_part(T* p, Wide x, int64_t n) {
  store_part(p, x, n);
}
ONNX_IRON_INLINE F8 add_eights(F8 sums, Wide x) { return add(sums, x); }
ONNX_IRON_INLINE F8 larger_half(Wide x) { return x; }
ONNX_IRON_INLINE float sum_lanes(const Wide (&x)[4]) {
  return sum(add(add(x[0], x[1]), add(x[2], x[3])));
}

#endif

ONNX_IRON_INLINE F8 unless_less(F8 x, F8 lowest, F8 part, F8 biased, F8) {
  return where_less(x, lowest, zero(), mul(part, power_of_two(biased)));
}

// Calls body(i, load, store) for i = 0, kWide, ... below n, with functions that touch what is below
// n.
template <typename Body>
ONNX_IRON_INLINE void for_wides(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    body(i, [](const auto* p) { return wide_at(p); }, [](auto* p, Wide x) { keep(p, x); });
  }
  if (i < n) {
    const int64_t rest = n - i;
    body(
        i, [rest](const auto* p) { return part_at(p, rest); },
        [rest](auto* p, Wide x) { keep_part(p, x, rest); });
  }
}

// The same in every lane of a V.
template <typename V>
ONNX_IRON_INLINE V all(float x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<V, Wide>) {
    return {_mm512_set1_ps(x)};
  } else {
    return splat(x);
  }
#else
  return splat(x);
#endif
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
