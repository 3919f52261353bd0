// Log: the natural logarithm.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Of finite x > 0, in float64 within two ulp, so that the rounding to float32 is nearly always
// that of the logarithm itself.
ONNX_IRON_INLINE F8 logarithm(F8 x) {
  double numbers[8], powers[8];
  store(numbers, to_double(x));
  for (int lane = 0; lane < 8; ++lane) {
    // x = m * 2**n, m from sqrt(1 / 2) to sqrt(2).
    constexpr uint64_t kHalf = 0x3fe6a09e667f3bcd, kMantissa = 0xfffffffffffff;
    uint64_t bits;
    std::memcpy(&bits, &numbers[lane], sizeof bits);
    const uint64_t from_half = bits - kHalf;
    powers[lane] = static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(from_half) >> 52));
    bits = (from_half & kMantissa) + kHalf;
    std::memcpy(&numbers[lane], &bits, sizeof bits);
  }
  const D8 m = load_double(numbers), n = load_double(powers), one = splat_double(1.0);
  // 2 atanh(s): the last term is 3e-17 of it.
  constexpr double kSeries[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const D8 s = div(sub(m, one), add(m, one));
  const D8 part = mul(s, polynomial(kSeries, mul(s, s)));
  return to_float(fma(n, splat_double(0.69314718055994530942), part));
}

struct Log : Unary {
  static constexpr const char* name = "Log";
  static double exact(double x) { return std::log(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) {
    const F8 infinity = splat(__builtin_inff());
    F8 result = logarithm(x);
    result = where_less(x, infinity, result, x);
    result = where_less(zero(), absolute(x), result, splat(-__builtin_inff()));
    result = where_less(x, zero(), splat(__builtin_nanf("")), result);
    return where_nan(x, x, result);
  }
};

}  // namespace

ONNX_IRON_UNARY(Log)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
