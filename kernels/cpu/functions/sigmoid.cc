// Sigmoid: the logistic function.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

ONNX_IRON_INLINE D8 sigmoid(D8 x) {
  const D8 one = splat_double(1.0);
  return div(one, add(one, exp(negative(x))));
}

struct Sigmoid : Unary {
  static constexpr const char* name = "Sigmoid";
  static constexpr const char* epilogue = "sigmoid";
  static double exact(double x) { return 1 / (1 + std::exp(-x)); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(sigmoid(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Sigmoid)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
