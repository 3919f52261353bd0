// Sigmoid: the logistic function.
#include "kernels/cpu/vector/exponentials.h"
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Sigmoid : Unary {
  static constexpr const char* name = "Sigmoid";
  static constexpr const char* epilogue = "sigmoid";
  static double exact(double x) { return 1 / (1 + std::exp(-x)); }
  template <typename V>
  ONNX_IRON_INLINE V apply(V x) {
    return ONNX_IRON_PATH::sigmoid(x);
  }
};

}  // namespace

ONNX_IRON_UNARY(Sigmoid)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
