// Max and Min: NaN where either is one, as numpy's maximum and minimum.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Max : Binary {
  static constexpr const char* name = "Max";
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return where_nan(a, a, larger(a, b)); }
  template <typename T>
  static T integer(T a, T b) {
    return a < b ? b : a;
  }
};

struct Min : Binary {
  static constexpr const char* name = "Min";
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return where_nan(a, a, smaller(a, b)); }
  template <typename T>
  static T integer(T a, T b) {
    return b < a ? b : a;
  }
};

}  // namespace

ONNX_IRON_BINARY(Max, Min)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
