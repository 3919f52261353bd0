// Log: the natural logarithm.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Log : Unary {
  static constexpr const char* name = "Log";
  static double exact(double x) { return std::log(x); }
  ONNX_IRON_INLINE F8 apply(F8 x) {
    float lanes[8];
    store(lanes, x);
    for (float& lane : lanes) lane = static_cast<float>(std::log(static_cast<double>(lane)));
    return load(lanes);
  }
};

}  // namespace

ONNX_IRON_UNARY(Log)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
