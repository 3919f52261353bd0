// Mod of integers: the rest has the divisor's sign.
#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Mod : Binary {
  static constexpr const char* name = "Mod";
  static constexpr bool divides = true;
  // With fmod, the rest has the sign of a.
  static constexpr const char* zero_attribute = "fmod";
  template <typename T>
  static T integer(T a, T b) {
    if (b == -1) return 0;
    const T rest = static_cast<T>(a % b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
};

}  // namespace

ONNX_IRON_BINARY(Mod)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
