// Exp.
#include "kernels/cpu/vector/exponentials.h"
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Exp : Unary {
  static constexpr const char* name = "Exp";
  static double exact(double x) { return std::exp(x); }
  template <typename V>
  ONNX_IRON_INLINE V apply(V x) {
    return ONNX_IRON_PATH::exp(x);
  }
};

}  // namespace

ONNX_IRON_UNARY(Exp)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
