// Reciprocal.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Reciprocal : Unary {
  static constexpr const char* name = "Reciprocal";
  ONNX_IRON_INLINE F8 apply(F8 x) { return div(splat(1.0f), x); }
};

}  // namespace

ONNX_IRON_UNARY(Reciprocal)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
