// Sqrt.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Sqrt : Unary {
  static constexpr const char* name = "Sqrt";
  ONNX_IRON_INLINE F8 apply(F8 x) { return ONNX_IRON_PATH::sqrt(x); }
};

}  // namespace

ONNX_IRON_UNARY(Sqrt)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
