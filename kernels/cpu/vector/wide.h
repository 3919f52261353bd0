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
ONNX_IRON_INLINE Wide add(Wide a, Wide b) { return {_mm512_add_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide sub(Wide a, Wide b) { return {_mm512_sub_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide mul(Wide a, Wide b) { return {_mm512_mul_ps(a.v, b.v)}; }
ONNX_IRON_INLINE Wide fma(Wide a, Wide b, Wide c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// b where a or b is a NaN.
ONNX_IRON_INLINE Wide larger(Wide a, Wide b) { return {_mm512_max_ps(a.v, b.v)}; }
// yes where a < b, else no.
ONNX_IRON_INLINE Wide where_less(Wide a, Wide b, Wide yes, Wide no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// As of eight lanes.
ONNX_IRON_INLINE Wide power_of_two(Wide biased) {
  const __m512i n = _mm512_add_epi32(_mm512_castps_si512(biased.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
// The eights in a Wide, in order, added to eight sums.
ONNX_IRON_INLINE F8 add_eights(F8 sums, Wide x) {
  sums = add(sums, F8{_mm512_castps512_ps256(x.v)});
  return add(sums, F8{_mm512_extractf32x8_ps(x.v, 1)});
}
// The larger of the eights.
ONNX_IRON_INLINE F8 larger_half(Wide x) {
  return larger(F8{_mm512_castps512_ps256(x.v)}, F8{_mm512_extractf32x8_ps(x.v, 1)});
}

#else

using Wide = F8;
inline constexpr int kWide = 8;

ONNX_IRON_INLINE Wide wide_at(const float* p) { return load(p); }
ONNX_IRON_INLINE void keep(float* p, Wide x) { store(p, x); }
ONNX_IRON_INLINE F8 add_eights(F8 sums, Wide x) { return add(sums, x); }
ONNX_IRON_INLINE F8 larger_half(Wide x) { return x; }

#endif

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
