// Erf: the error function.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

ONNX_IRON_INLINE D8 erf(D8 x) {
  // erf(x) / x in x**2 for |x| <= 1; 1.3e-9.
  constexpr double kSeries[] = {
      1.1283791658483509,   -0.37612626666720331,    0.11283594715160218,  -0.026854212010626412,
      0.005189087423433974, -0.00080168642871658695, 7.8758750626854883e-5};
  const D8 one = splat_double(1.0), zero = splat_double(0.0);
  const D8 y = smaller(splat_double(11.0), absolute(x)), square = mul(y, y);
  const D8 tail = sub(one, mul(exp(negative(square)), scaled_erfc(y)));
  const D8 magnitude = where_less(y, one, mul(y, polynomial(kSeries, square)), tail);
  // +0 and -0 both take the last case, which keeps their sign.
  const D8 signed_one = where_less(x, zero, splat_double(-1.0), one);
  return where_less(zero, absolute(x), mul(signed_one, magnitude), x);
}

struct Erf : Unary {
  static constexpr const char* name = "Erf";
  static double exact(double x) { return std::erf(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(erf(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Erf)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
