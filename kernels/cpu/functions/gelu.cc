// GELU, exact and by a hyperbolic tangent.
#include "kernels/cpu/vector/function.h"
#include "kernels/cpu/vector/normal_tail.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct GELU : Unary {
  static constexpr const char* name = "GELU";
  static constexpr const char* attribute = "approximate";
  static constexpr const char* choice = "none";
  static constexpr const char* epilogue = "gelu";
  // erfc, for 1 + erf cancels in the lower tail; likewise the logistic form of 1 + tanh.
  static double exact(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }
  ONNX_IRON_INLINE Wide apply(Wide x) { return gelu(x); }
};

struct GELUTanh : Unary {
  static constexpr const char* name = "GELU";
  static constexpr const char* attribute = "approximate";
  static constexpr const char* choice = "tanh";
  static double exact(double x) {
    return x / (1 + std::exp(-1.5957691216057307117 * (x + 0.044715 * x * x * x)));
  }
  template <typename V>
  ONNX_IRON_INLINE V apply(V x) {
    return gelu_tanh(x);
  }
};

}  // namespace

ONNX_IRON_UNARY(GELU, GELUTanh)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
