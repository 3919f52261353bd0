// SiLU: x times its logistic function.
#include "kernels/cpu/vector/exponentials.h"
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct SiLU : Unary {
  static constexpr const char* name = "SiLU";
  static constexpr const char* epilogue = "silu";
  static double exact(double x) { return x / (1 + std::exp(-x)); }
  template <typename V>
  ONNX_IRON_INLINE V apply(V x) {
    return ONNX_IRON_PATH::silu(x);
  }
};

}  // namespace

ONNX_IRON_UNARY(SiLU)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
