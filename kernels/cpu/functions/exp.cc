// Exp.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Exp : Unary {
  static constexpr const char* name = "Exp";
  static double exact(double x) { return std::exp(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(exp(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(Exp)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
