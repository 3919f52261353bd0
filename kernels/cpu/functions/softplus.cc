// Softplus: log(1 + exp(x)).
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// max(x, 0) + log1p(exp(-|x|)), the logarithm as 2 atanh(w): 2e-10 of it at w = 1/3, its largest.
ONNX_IRON_INLINE D8 softplus(D8 x) {
  constexpr double kSeries[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const D8 e = exp(negative(absolute(x)));
  const D8 w = div(e, add(splat_double(2.0), e));
  const D8 logarithm = mul(w, polynomial(kSeries, mul(w, w)));
  // The second operand is what is left of a NaN.
  return add(larger(splat_double(0.0), x), logarithm);
}

struct Softplus : Unary {
  static constexpr const char* name = "Softplus";
  static double exact(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(softplus(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Softplus)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
