// Tanh.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Tanh : Unary {
  static constexpr const char* name = "Tanh";
  static double exact(double x) { return std::tanh(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(tanh(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Tanh)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
