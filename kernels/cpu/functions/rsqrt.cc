// Rsqrt: one over the square root.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Rsqrt : Unary {
  static constexpr const char* name = "Rsqrt";
  static double exact(double x) { return 1 / std::sqrt(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return div(splat(1.0f), ONNX_IRON_PATH::sqrt(x)); }
};

}  // namespace

ONNX_IRON_UNARY(Rsqrt)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
