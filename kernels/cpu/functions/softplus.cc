// Softplus: log(1 + exp(x)).
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Softplus : Unary {
  static constexpr const char* name = "Softplus";
  static double exact(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(softplus(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Softplus)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
