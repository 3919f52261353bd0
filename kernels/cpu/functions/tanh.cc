// Tanh.
#include "kernels/cpu/vector/exponentials.h"
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Tanh : Unary {
  static constexpr const char* name = "Tanh";
  static double exact(double x) { return std::tanh(x); }
  template <typename V>
  ONNX_IRON_INLINE V apply(V x) {
    return ONNX_IRON_PATH::tanh(x);
  }
};

}  // namespace

ONNX_IRON_UNARY(Tanh)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
