// Add, Sub, Mul, Div. Integer sums and products wrap around, as numpy's; so does the one quotient
// out of range. Quotients of integers go towards zero.
#include <type_traits>

#include "kernels/cpu/vector/function.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

struct Add : Binary {
  static constexpr const char* name = "Add";
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return add(a, b); }
  template <typename T>
  static T integer(T a, T b) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  }
};

struct Sub : Binary {
  static constexpr const char* name = "Sub";
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return sub(a, b); }
  template <typename T>
  static T integer(T a, T b) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) - static_cast<Bits>(b));
  }
};

struct Mul : Binary {
  static constexpr const char* name = "Mul";
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return mul(a, b); }
  template <typename T>
  static T integer(T a, T b) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
  }
};

struct Div : Binary {
  static constexpr const char* name = "Div";
  static constexpr bool divides = true;
  ONNX_IRON_INLINE F8 apply(F8 a, F8 b) { return div(a, b); }
  template <typename T>
  static T integer(T a, T b) {
    using Bits = std::make_unsigned_t<T>;
    return b == -1 ? static_cast<T>(-static_cast<Bits>(a)) : static_cast<T>(a / b);
  }
};

}  // namespace

ONNX_IRON_BINARY(Add, Sub, Mul, Div)

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
