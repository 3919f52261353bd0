// The upper tail of the normal distribution, which GELU takes of negative x.
#pragma once

#include "kernels/cpu/vector/exponentials.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

#if defined(__FMA__)

// exp(m * m / 2) * Phi(-m) for 0 <= m < 15, by a polynomial in m - c for each of 32 intervals of
// 1 + m, whose exponent and first three bits name it; c is the interval's middle. Least squares in
// Chebyshev's nodes, 2e-9; the constant term in two parts.
inline constexpr int kTailTerms = 7;
alignas(64) inline constexpr float kTail[kTailTerms][32] = {
    {0.245331392f, 0.217639819f,  0.195023105f,  0.176290885f,  0.160580099f,  0.147254065f,
     0.135835603f, 0.125961721f,  0.113452062f,  0.100039206f,  0.0893593207f, 0.0806754008f,
     0.073488228f, 0.0674492344f, 0.0623084866f, 0.0578826331f, 0.0522930957f, 0.0463100448f,
     0.04154329f,  0.037658859f,  0.0344340578f, 0.0317149274f, 0.0293917321f, 0.0273842253f,
     0.476011127f, 0.433182299f,  0.396211833f,  0.364104867f,  0.336061448f,  0.311434001f,
     0.289695084f, 0.270412415f},
    {-2.66730193e-09f, 4.9230815e-09f,   5.40437783e-09f,  6.7636674e-09f,   1.03653119e-09f,
     3.44449358e-09f,  -3.8206891e-09f,  1.85176208e-09f,  2.69305023e-10f,  3.26552319e-09f,
     -2.04096851e-09f, -1.59930236e-09f, 2.84203683e-09f,  -3.06722603e-09f, 3.61798397e-10f,
     -1.33351863e-09f, 1.47500234e-09f,  -1.70121606e-09f, -1.49628021e-09f, -3.14428816e-10f,
     8.2446916e-10f,   -1.83185322e-09f, -4.35279701e-10f, -8.638322e-11f,   5.66933256e-09f,
     1.13345946e-08f,  3.09840398e-09f,  5.02397812e-09f,  -1.4262886e-08f,  -1.35769351e-08f,
     -1.08085612e-08f, 6.70016931e-10f},
    {-0.122944467f,   -0.0996875241f,  -0.0820297301f,  -0.0683968589f,  -0.0577095672f,
     -0.0492138676f,  -0.0423738323f,  -0.0368023291f,  -0.030223079f,   -0.0237952434f,
     -0.0191651769f,  -0.0157341342f,  -0.0131290685f,  -0.0111092003f,  -0.00951423682f,
     -0.00823451672f, -0.00674405182f, -0.00530691398f, -0.00428103982f, -0.00352426386f,
     -0.00295060663f, -0.00250571081f, -0.00215390348f, -0.00187101518f, -0.369191587f,
     -0.317720592f,   -0.27512607f,    -0.239646405f,   -0.209907725f,   -0.184831411f,
     -0.16356504f,    -0.145430639f},
    {0.0535093248f,   0.0402846746f,   0.0308623612f,   0.0240233652f,   0.0189736169f,
     0.0151855545f,   0.012302137f,    0.010077511f,    0.00761348521f,  0.00540350005f,
     0.00395364827f,  0.00296912435f,  0.00228030724f,  0.00178566319f,  0.00142225088f,
     0.00114982261f,  0.000856346684f, 0.000600633037f, 0.00043670446f,  0.000327043352f,
     0.000251040852f, 0.000196770168f, 0.000157017697f, 0.000127252846f, 0.22646825f,
     0.186804786f,    0.155117422f,    0.129629761f,    0.108994149f,    0.0921811759f,
     0.0783992261f,   0.0670355856f},
    {-0.0209154636f,   -0.0147653399f,   -0.0106261093f,   -0.00778433494f,  -0.00579686649f,
     -0.00438271742f,  -0.00336023513f,  -0.00260982313f,  -0.0018263692f,   -0.00117734517f,
     -0.00078737369f,  -0.000543587841f, -0.000385812076f, -0.000280541455f, -0.000208387079f,
     -0.000157735922f, -0.000107133303f, -6.71689122e-05f, -4.41108714e-05f, -3.01001237e-05f,
     -2.12105697e-05f, -1.53601777e-05f, -1.13874894e-05f, -8.6158534e-06f,  -0.118345797f,
     -0.0942315757f,   -0.0755506307f,   -0.0609777942f,   -0.0495328382f,   -0.0404856168f,
     -0.0332885534f,   -0.027528258f},
    {0.00751321111f,  0.00500664394f,  0.0034055484f,   0.00236122217f,  0.00166657078f,
     0.00119594927f,  0.000871576893f, 0.000644376967f, 0.000421311153f, 0.000248044671f,
     0.000152315959f, 9.70385809e-05f, 6.38515412e-05f, 4.32280249e-05f, 3.00132215e-05f,
     2.13110798e-05f, 1.32855303e-05f, 7.45784519e-06f, 4.42919463e-06f, 2.75654679e-06f,
     1.78450807e-06f, 1.19467506e-06f, 8.23251867e-07f, 5.81735151e-07f, 0.0548200272f,
     0.0423222519f,   0.0329051055f,   0.0257588942f,   0.0202986114f,   0.0160985962f,
     0.0128469858f,   0.0103137596f},
    {-0.00250000553f,  -0.00158123439f,  -0.00102182303f,  -0.000673753384f, -0.000452714041f,
     -0.000309618743f, -0.000215290245f, -0.000152040404f, -9.29087182e-05f, -5.02628973e-05f,
     -2.84852249e-05f, -1.68185397e-05f, -1.02967479e-05f, -6.51010259e-06f, -4.23574011e-06f,
     -2.827554e-06f,   -1.61426556e-06f, -8.14428574e-07f, -4.38677347e-07f, -2.49553011e-07f,
     -1.48674403e-07f, -9.21409438e-08f, -5.90839413e-08f, -3.90282509e-08f, -0.0229929928f,
     -0.0172670037f,   -0.013060092f,    -0.00994708855f,  -0.00762746064f,  -0.00588725694f,
     -0.00457310211f,  -0.00357430428f},
};

// The polynomials for each lane's 1 + m, and the middles of their intervals.
#if defined(__AVX512F__)

ONNX_IRON_INLINE void tail_terms(Wide above_one, Wide (&terms)[8]) {
  const __m512i interval = _mm512_srli_epi32(_mm512_castps_si512(above_one.v), 20);
#pragma GCC unroll 8
  for (int term = 0; term < kTailTerms; ++term) {
    const float* table = kTail[term];
    terms[term].v = _mm512_permutex2var_ps(_mm512_load_ps(table), interval,  // its last five bits
                                           _mm512_load_ps(table + 16));
  }
}
ONNX_IRON_INLINE Wide middle_of(Wide above_one) {
  const __m512i interval =
      _mm512_and_si512(_mm512_castps_si512(above_one.v), _mm512_set1_epi32(-0x100000));
  return {_mm512_castsi512_ps(_mm512_or_si512(interval, _mm512_set1_epi32(0x80000)))};
}

#else

// An interval's terms together.
struct TailRows {
  alignas(32) float terms[32][8];
};
inline constexpr TailRows kTailRows = [] {
  TailRows rows{};
  for (int i = 0; i < 32; ++i) {
    for (int term = 0; term < kTailTerms; ++term) rows.terms[i][term] = kTail[term][i];
  }
  return rows;
}();

ONNX_IRON_INLINE void tail_terms(F8 above_one, F8 (&terms)[8]) {
  const __m256i interval = _mm256_srli_epi32(_mm256_castps_si256(above_one.v), 20);
  alignas(32) int places[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(places),
                     _mm256_and_si256(interval, _mm256_set1_epi32(31)));
  for (int lane = 0; lane < 8; ++lane) terms[lane] = load(kTailRows.terms[places[lane]]);
  turn(terms);
}
ONNX_IRON_INLINE F8 middle_of(F8 above_one) {
  const __m256i interval =
      _mm256_and_si256(_mm256_castps_si256(above_one.v), _mm256_set1_epi32(-0x100000));
  return {_mm256_castsi256_ps(_mm256_or_si256(interval, _mm256_set1_epi32(0x80000)))};
}

#endif

// max(x, 0) - |x| * Phi(-|x|).
ONNX_IRON_INLINE Wide gelu(Wide x) {
  const Wide one = all<Wide>(1.0f);
  const Wide factor = larger(all<Wide>(-14.9f), below_zero(x));
  const Wide above_one = sub(one, factor);
  const Wide apart = sub(sub(one, middle_of(above_one)), factor);
  Wide terms[8];
  tail_terms(above_one, terms);
  Wide slope = terms[kTailTerms - 1];
#pragma GCC unroll 8
  for (int term = kTailTerms - 2; term > 1; --term) slope = fma(slope, apart, terms[term]);
  const Wide grown = mul(slope, apart);
  const Wide high = add(terms[0], grown);
  const Wide low = add(add(sub(terms[0], high), grown), terms[1]);
  const Wide square = mul(factor, factor), square_rest = fms(factor, factor, square);
  const Wide half = all<Wide>(-0.5f);
  const Exponential<Wide> e = exponential(mul(half, square), mul(half, square_rest));
  const Wide product = mul(high, e.high);
  const Wide rest = fma(low, e.high, fma(high, e.low, fms(high, e.high, product)));
  const Wide tail = scaled(fma(factor, product, mul(factor, rest)), e.biased, e.n);
  return add(sub(x, smaller(x, all<Wide>(0.0f))), tail);
}

#else

// x * Phi(x), without the cancellation of 1 + erf in the lower tail.
ONNX_IRON_INLINE F8 gelu(F8 given) {
  const D8 x = to_double(given);
  const D8 half = splat_double(0.5);
  const D8 y = mul(absolute(x), splat_double(0.70710678118654752));
  const D8 tail = mul(mul(half, exp(negative(mul(y, y)))), scaled_erfc(y));
  return to_float(mul(x, where_less(x, splat_double(0.0), tail, sub(splat_double(1.0), tail))));
}

#endif

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
