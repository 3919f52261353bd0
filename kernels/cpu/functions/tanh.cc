// Tanh.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

ONNX_IRON_INLINE D8 tanh(D8 x) {
  const D8 one = splat_double(1.0);
  // The quotient cancels near 0: there a series, 4e-12 at its end.
  constexpr double kSeries[] = {1.0, -1.0 / 3, 2.0 / 15};
  // Past 20 the result is 1, and infinity / infinity must not come up.
  const D8 near = smaller(splat_double(20.0), larger(splat_double(-20.0), x));
  const D8 e = exp(add(near, near));
  const D8 series = mul(near, polynomial(kSeries, mul(near, near)));
  return where_less(absolute(x), splat_double(0.02), series, div(sub(e, one), add(e, one)));
}

struct Tanh : Unary {
  static constexpr const char* name = "Tanh";
  static double exact(double x) { return std::tanh(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(tanh(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Tanh)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
