// Relu; NaN and the sign of a zero stay.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Relu : Unary {
  static constexpr const char* name = "Relu";
  ONNX_IRON_INLINE F8 apply(F8 x) { return where_less(x, zero(), zero(), x); }
};

}  // namespace

ONNX_IRON_UNARY(Relu)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
