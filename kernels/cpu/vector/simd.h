// Eight lanes of float32: AVX2 where the source is compiled for it, the compiler's own vectors
// elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/bf16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace onnx_iron {
namespace ONNX_IRON_PATH {

#if defined(__AVX2__)

struct F8 {
  __m256 v;
};

ONNX_IRON_INLINE F8 zero() { return {_mm256_setzero_ps()}; }
ONNX_IRON_INLINE F8 splat(float x) { return {_mm256_set1_ps(x)}; }
ONNX_IRON_INLINE F8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
ONNX_IRON_INLINE void store(float* p, F8 x) { _mm256_storeu_ps(p, x.v); }

ONNX_IRON_INLINE F8 load(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}

// Rounded to bfloat16, still as float32.
ONNX_IRON_INLINE F8 round_to_bf16(F8 x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN)),
                                      _mm256_set1_epi32(0x7fc00000));
  const __m256 rounded = _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(nan),
                                          _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  return {_mm256_and_ps(rounded, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)))};
}

ONNX_IRON_INLINE void store(bf16* p, F8 x) {
  const __m256i half = _mm256_srli_epi32(_mm256_castps_si256(round_to_bf16(x).v), 16);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

// Lanes below n are on.
ONNX_IRON_INLINE __m256i lanes_below(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ONNX_IRON_INLINE F8 load_part(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, lanes_below(n))};
}
ONNX_IRON_INLINE void store_part(float* p, F8 x, int64_t n) {
  _mm256_maskstore_ps(p, lanes_below(n), x.v);
}
// Lanes from n on become zero.
ONNX_IRON_INLINE F8 keep_below(F8 x, int64_t n) {
  return {_mm256_and_ps(x.v, _mm256_castsi256_ps(lanes_below(n)))};
}

ONNX_IRON_INLINE F8 add(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
ONNX_IRON_INLINE F8 sub(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
ONNX_IRON_INLINE F8 mul(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
ONNX_IRON_INLINE F8 div(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
ONNX_IRON_INLINE F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// a * b - c and c - a * b, rounded once.
ONNX_IRON_INLINE F8 fms(F8 a, F8 b, F8 c) { return {_mm256_fmsub_ps(a.v, b.v, c.v)}; }
ONNX_IRON_INLINE F8 fnma(F8 a, F8 b, F8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
ONNX_IRON_INLINE F8 sqrt(F8 x) { return {_mm256_sqrt_ps(x.v)}; }
// b where a or b is a NaN.
ONNX_IRON_INLINE F8 larger(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
ONNX_IRON_INLINE F8 smaller(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
// yes where a < b, else no.
ONNX_IRON_INLINE F8 where_less(F8 a, F8 b, F8 yes, F8 no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
ONNX_IRON_INLINE F8 where_nan(F8 x, F8 yes, F8 no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q))};
}
ONNX_IRON_INLINE F8 flip_sign(F8 x) { return {_mm256_xor_ps(x.v, _mm256_set1_ps(-0.0f))}; }
ONNX_IRON_INLINE F8 absolute(F8 x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
// 2**n, n the integer that `biased` = n + 1.5 * 2**23 holds in its low bits; n in -126..127.
ONNX_IRON_INLINE F8 power_of_two(F8 biased) {
  const __m256i n = _mm256_castps_si256(biased.v);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23))};
}

// x * 2**n, rounded once where x is 0.5 to 2, n being `biased` less 1.5 * 2**23, in -252..254.
ONNX_IRON_INLINE F8 scaled(F8 x, F8 biased, F8) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(biased.v), _mm256_set1_epi32(0x4b400000));
  const __m256i half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
  const auto power = [&](__m256i exponent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, bias), 23));
  };
  return {_mm256_mul_ps(_mm256_mul_ps(x.v, power(half)), power(_mm256_sub_epi32(n, half)))};
}
// -|x|.
ONNX_IRON_INLINE F8 below_zero(F8 x) { return {_mm256_or_ps(x.v, _mm256_set1_ps(-0.0f))}; }
// x >= 0 with y's sign.
ONNX_IRON_INLINE F8 with_sign_of(F8 x, F8 y) {
  return {_mm256_or_ps(x.v, _mm256_and_ps(y.v, _mm256_set1_ps(-0.0f)))};
}

// a0 b0 a1 b1 ... in x and y, to all a and all b, and back.
ONNX_IRON_INLINE void split_pairs(F8 x, F8 y, F8* a, F8* b) {
  const __m256 even = _mm256_shuffle_ps(x.v, y.v, 0x88);
  const __m256 odd = _mm256_shuffle_ps(x.v, y.v, 0xdd);
  a->v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
  b->v = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
}
ONNX_IRON_INLINE void join_pairs(F8 a, F8 b, F8* x, F8* y) {
  const __m256 low = _mm256_unpacklo_ps(a.v, b.v);
  const __m256 high = _mm256_unpackhi_ps(a.v, b.v);
  x->v = _mm256_permute2f128_ps(low, high, 0x20);
  y->v = _mm256_permute2f128_ps(low, high, 0x31);
}

// Eight rows of eight become columns.
ONNX_IRON_INLINE void turn(F8* x) {
  __m256 pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(x[i].v, x[i + 1].v);
    pairs[i + 1] = _mm256_unpackhi_ps(x[i].v, x[i + 1].v);
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    x[i].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    x[i + 4].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

// The one order in which lanes are summed: ((0+4)+(2+6)) + ((1+5)+(3+7)).
ONNX_IRON_INLINE __m128 halves(F8 x) {
  return _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
}
ONNX_IRON_INLINE float sum(F8 x) {
  const __m128 four = halves(x);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// No lane may be a NaN.
ONNX_IRON_INLINE float largest_lane(F8 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// The sums of four, in that order, to out[0..3].
ONNX_IRON_INLINE void sum_four(const F8* x, float* out) {
  __m128 a = halves(x[0]), b = halves(x[1]), c = halves(x[2]), d = halves(x[3]);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d)));
}

#else

typedef float FloatLanes __attribute__((vector_size(32)));
typedef uint32_t UnsignedLanes __attribute__((vector_size(32)));
typedef uint16_t HalfLanes __attribute__((vector_size(16)));

struct F8 {
  FloatLanes v;
};

// The bits of one vector as another type of the same size.
template <typename To, typename From>
ONNX_IRON_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

ONNX_IRON_INLINE F8 splat(float x) { return {FloatLanes{x, x, x, x, x, x, x, x}}; }
ONNX_IRON_INLINE F8 zero() { return splat(0.0f); }
ONNX_IRON_INLINE F8 load(const float* p) {
  F8 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
ONNX_IRON_INLINE void store(float* p, F8 x) { std::memcpy(p, &x, sizeof x); }

ONNX_IRON_INLINE F8 load(const bf16* p) {
  HalfLanes half;
  std::memcpy(&half, p, sizeof half);
  return {bits_as<FloatLanes>(__builtin_convertvector(half, UnsignedLanes) << 16)};
}

// Rounded to bfloat16, still as float32.
ONNX_IRON_INLINE F8 round_to_bf16(F8 x) {
  const UnsignedLanes bits = bits_as<UnsignedLanes>(x.v);
  const UnsignedLanes up = bits + ((bits >> 16 & 1u) + 0x7fffu);
  const UnsignedLanes nan = (bits & 0x80000000u) | 0x7fc00000u;
  return {bits_as<FloatLanes>((x.v == x.v ? up : nan) & 0xffff0000u)};
}

ONNX_IRON_INLINE void store(bf16* p, F8 x) {
  const UnsignedLanes half = bits_as<UnsignedLanes>(round_to_bf16(x).v) >> 16;
  const HalfLanes packed = __builtin_convertvector(half, HalfLanes);
  std::memcpy(p, &packed, sizeof packed);
}

ONNX_IRON_INLINE F8 load_part(const float* p, int64_t n) {
  float lanes[8] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) lanes[i] = p[i];
  return load(lanes);
}
ONNX_IRON_INLINE void store_part(float* p, F8 x, int64_t n) {
  for (int64_t i = 0; i < n && i < 8; ++i) p[i] = x.v[i];
}
ONNX_IRON_INLINE F8 keep_below(F8 x, int64_t n) {
  for (int64_t i = n; i < 8; ++i) x.v[i] = 0.0f;
  return x;
}

ONNX_IRON_INLINE F8 add(F8 a, F8 b) { return {a.v + b.v}; }
ONNX_IRON_INLINE F8 sub(F8 a, F8 b) { return {a.v - b.v}; }
ONNX_IRON_INLINE F8 mul(F8 a, F8 b) { return {a.v * b.v}; }
ONNX_IRON_INLINE F8 div(F8 a, F8 b) { return {a.v / b.v}; }
// Rounded twice: a fused one would be a call for each lane.
ONNX_IRON_INLINE F8 fma(F8 a, F8 b, F8 c) { return {a.v * b.v + c.v}; }
ONNX_IRON_INLINE F8 sqrt(F8 x) {
  for (int i = 0; i < 8; ++i) x.v[i] = __builtin_sqrtf(x.v[i]);
  return x;
}
// b where a or b is a NaN.
ONNX_IRON_INLINE F8 larger(F8 a, F8 b) { return {a.v > b.v ? a.v : b.v}; }
ONNX_IRON_INLINE F8 smaller(F8 a, F8 b) { return {a.v < b.v ? a.v : b.v}; }
// yes where a < b, else no.
ONNX_IRON_INLINE F8 where_less(F8 a, F8 b, F8 yes, F8 no) { return {a.v < b.v ? yes.v : no.v}; }
ONNX_IRON_INLINE F8 where_nan(F8 x, F8 yes, F8 no) { return {x.v == x.v ? no.v : yes.v}; }
ONNX_IRON_INLINE F8 flip_sign(F8 x) {
  return {bits_as<FloatLanes>(bits_as<UnsignedLanes>(x.v) ^ 0x80000000u)};
}
ONNX_IRON_INLINE F8 absolute(F8 x) {
  return {bits_as<FloatLanes>(bits_as<UnsignedLanes>(x.v) & 0x7fffffffu)};
}
// 2**n, n the integer that `biased` = n + 1.5 * 2**23 holds in its low bits; n in -126..127.
ONNX_IRON_INLINE F8 power_of_two(F8 biased) {
  return {bits_as<FloatLanes>((bits_as<UnsignedLanes>(biased.v) + 127u) << 23)};
}

// a0 b0 a1 b1 ... in x and y, to all a and all b, and back.
ONNX_IRON_INLINE void split_pairs(F8 x, F8 y, F8* a, F8* b) {
  for (int i = 0; i < 4; ++i) {
    a->v[i] = x.v[2 * i];
    b->v[i] = x.v[2 * i + 1];
    a->v[i + 4] = y.v[2 * i];
    b->v[i + 4] = y.v[2 * i + 1];
  }
}
ONNX_IRON_INLINE void join_pairs(F8 a, F8 b, F8* x, F8* y) {
  for (int i = 0; i < 4; ++i) {
    x->v[2 * i] = a.v[i];
    x->v[2 * i + 1] = b.v[i];
    y->v[2 * i] = a.v[i + 4];
    y->v[2 * i + 1] = b.v[i + 4];
  }
}

// Eight rows of eight become columns.
ONNX_IRON_INLINE void turn(F8* x) {
  // Three times, the first half of all elements and the second one in turns.
  for (int time = 0; time < 3; ++time) {
    F8 y[8];
    for (int i = 0; i < 4; ++i) join_pairs(x[i], x[i + 4], &y[2 * i], &y[2 * i + 1]);
    for (int i = 0; i < 8; ++i) x[i] = y[i];
  }
}

// The one order in which lanes are summed: ((0+4)+(2+6)) + ((1+5)+(3+7)).
ONNX_IRON_INLINE float sum(F8 x) {
  float lanes[8];
  store(lanes, x);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}
// No lane may be a NaN.
ONNX_IRON_INLINE float largest_lane(F8 x) {
  float most = x.v[0];
  for (int i = 1; i < 8; ++i) most = x.v[i] > most ? x.v[i] : most;
  return most;
}
// The sums of four, in that order, to out[0..3].
ONNX_IRON_INLINE void sum_four(const F8* x, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum(x[i]);
}

#endif

// Fewer than eight bfloat16; lanes from n on are zero.
ONNX_IRON_INLINE F8 load_part(const bf16* p, int64_t n) {
  bf16 lanes[8] = {};
  for (int64_t i = 0; i < n && i < 8; ++i) lanes[i] = p[i];
  return load(lanes);
}
ONNX_IRON_INLINE void store_part(bf16* p, F8 x, int64_t n) {
  bf16 lanes[8];
  store(lanes, x);
  for (int64_t i = 0; i < n && i < 8; ++i) p[i] = lanes[i];
}

// Calls body(i, load, store) for i = 0, 8, ... below n, with functions that touch what is below n.
template <typename Body>
ONNX_IRON_INLINE void for_eights(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    body(i, [](const auto* p) { return load(p); }, [](auto* p, F8 x) { store(p, x); });
  }
  if (i < n) {
    const int64_t rest = n - i;
    body(
        i, [rest](const auto* p) { return load_part(p, rest); },
        [rest](auto* p, F8 x) { store_part(p, x, rest); });
  }
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
