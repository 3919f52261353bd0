// GELU, exact and by a hyperbolic tangent.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// x * Phi(x), without the cancellation of 1 + erf in the lower tail.
ONNX_IRON_INLINE D8 gelu(D8 x) {
  const D8 half = splat_double(0.5);
  const D8 y = mul(absolute(x), splat_double(0.70710678118654752));
  const D8 tail = mul(mul(half, exp(negative(mul(y, y)))), scaled_erfc(y));
  return mul(x, where_less(x, splat_double(0.0), tail, sub(splat_double(1.0), tail)));
}

// x * (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) * (x + 0.044715 x**3).
ONNX_IRON_INLINE D8 gelu_tanh(D8 x) {
  const D8 cubic = fma(mul(x, x), splat_double(0.044715), splat_double(1.0));
  const D8 twice = mul(mul(x, cubic), splat_double(-1.5957691216057308));
  return div(x, add(splat_double(1.0), exp(twice)));
}

struct GELU : Unary {
  static constexpr const char* name = "GELU";
  static constexpr const char* attribute = "approximate";
  static constexpr const char* choice = "none";
  static constexpr const char* epilogue = "gelu";
  // erfc, for 1 + erf cancels in the lower tail; likewise the logistic form of 1 + tanh.
  static double exact(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(gelu(to_double(x))); }
};

struct GELUTanh : Unary {
  static constexpr const char* name = "GELU";
  static constexpr const char* attribute = "approximate";
  static constexpr const char* choice = "tanh";
  static double exact(double x) {
    return x / (1 + std::exp(-1.5957691216057307117 * (x + 0.044715 * x * x * x)));
  }
  ONNX_IRON_INLINE F8 apply(F8 x) { return to_float(gelu_tanh(to_double(x))); }
};

}  // namespace

ONNX_IRON_UNARY(GELU, GELUTanh)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
