// Abs.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Abs : Unary {
  static constexpr const char* name = "Abs";
  ONNX_IRON_INLINE F8 apply(F8 x) { return absolute(x); }
};

}  // namespace

ONNX_IRON_UNARY(Abs)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
