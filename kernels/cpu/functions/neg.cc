// Neg.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Neg : Unary {
  static constexpr const char* name = "Neg";
  ONNX_IRON_INLINE F8 apply(F8 x) { return flip_sign(x); }
};

}  // namespace

ONNX_IRON_UNARY(Neg)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
