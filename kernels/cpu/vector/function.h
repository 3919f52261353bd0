// What makes a function of a struct. A file of functions/ holds one or a few of them:
//
//   struct SiLU : Unary {
//     static constexpr const char* name = "SiLU";
//     static double exact(double x) { return x / (1 + std::exp(-x)); }
//     template <typename V>
//     ONNX_IRON_INLINE V apply(V x) {
//       return silu(x);
//     }
//   };
//   ONNX_IRON_UNARY(SiLU)
//
// and nothing else names it: CMake finds the file, and one without its last line does not link.
#pragma once

#include <cmath>
#include <iterator>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/wide.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

// Of one operand: `name` is the op, apply its float32 form, of F8 or of any vector. With
// exact(double), bfloat16 is a table of that formula's results; without, which suits what takes an
// instruction or two, apply rounded.
struct Unary {
  static constexpr const char* attribute = nullptr;
  static constexpr const char* choice = nullptr;
  static constexpr const char* epilogue = nullptr;
};

// Of two operands: apply(F8, F8) is its form for float32 and bfloat16, integer(T, T) the one for
// int32 and int64. It has one of them or both.
struct Binary {
  static constexpr bool divides = false;
  static constexpr const char* zero_attribute = nullptr;
};

template <typename Function, typename T>
void unary_loop(const void* x, void* out, int64_t n) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  const auto body = [&](int64_t i, auto load, auto store) __attribute__((always_inline)) {
    store(to + i, Function::apply(load(from + i)));
  };
  if constexpr (requires(Wide wide) { Function::apply(wide); }) {
    for_wides(n, body);
  } else {
    for_eights(n, body);
  }
}

template <typename Function, typename T>
void binary_loop(const void* a, bool a_one, const void* b, bool b_one, void* out, int64_t n) {
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  T* to = static_cast<T*>(out);
  if (a_one) {
    const F8 same = splat(widen_one(*left));
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(to + i, Function::apply(same, load(right + i)));
    });
  } else if (b_one) {
    const F8 same = splat(widen_one(*right));
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(to + i, Function::apply(load(left + i), same));
    });
  } else {
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(to + i, Function::apply(load(left + i), load(right + i)));
    });
  }
}

template <typename Function, typename T>
void integer_loop(const void* a, bool a_one, const void* b, bool b_one, void* out, int64_t n) {
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  T* to = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) {
    to[i] = Function::integer(left[a_one ? 0 : i], right[b_one ? 0 : i]);
  }
}

template <typename Function>
constexpr UnaryFunction unary_function() {
  static_assert((Function::attribute == nullptr) == (Function::choice == nullptr));
  double (*exact)(double) = nullptr;
  if constexpr (requires { Function::exact(1.0); }) exact = Function::exact;
  return {.name = Function::name,
          .attribute = Function::attribute,
          .choice = Function::choice,
          .epilogue = Function::epilogue,
          .exact = exact,
          .float32 = unary_loop<Function, float>,
          .bfloat16 = unary_loop<Function, bf16>};
}

template <typename Function>
constexpr BinaryFunction binary_function() {
  constexpr bool real = requires(F8 x) { Function::apply(x, x); };
  constexpr bool whole = requires(int64_t x) { Function::integer(x, x); };
  static_assert(real || whole, "a function of two operands has apply, integer or both");
  BinaryFunction function{.name = Function::name,
                          .divides = Function::divides,
                          .zero_attribute = Function::zero_attribute,
                          .float32 = nullptr,
                          .bfloat16 = nullptr,
                          .int32 = nullptr,
                          .int64 = nullptr};
  if constexpr (real) {
    function.float32 = binary_loop<Function, float>;
    function.bfloat16 = binary_loop<Function, bf16>;
  }
  if constexpr (whole) {
    function.int32 = integer_loop<Function, int32_t>;
    function.int64 = integer_loop<Function, int64_t>;
  }
  return function;
}

template <typename... Functions>
inline constexpr UnaryFunction kUnary[] = {unary_function<Functions>()...};
template <typename... Functions>
inline constexpr BinaryFunction kBinary[] = {binary_function<Functions>()...};

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron

// The symbol by which vector/table.cc finds a file of functions/; CMake gives its stem.
#define ONNX_IRON_FUNCTIONS_IN(stem) functions_in_##stem
#define ONNX_IRON_FUNCTIONS_OF(stem) ONNX_IRON_FUNCTIONS_IN(stem)

// The last line of such a file, in its namespace: the structs that it holds, all of one operand ...
#define ONNX_IRON_UNARY(...)                                                       \
  extern const FunctionFile ONNX_IRON_FUNCTIONS_OF(ONNX_IRON_FUNCTION_FILE);       \
  constinit const FunctionFile ONNX_IRON_FUNCTIONS_OF(ONNX_IRON_FUNCTION_FILE) = { \
      kUnary<__VA_ARGS__>, std::size(kUnary<__VA_ARGS__>), nullptr, 0};
// ... or all of two.
#define ONNX_IRON_BINARY(...)                                                      \
  extern const FunctionFile ONNX_IRON_FUNCTIONS_OF(ONNX_IRON_FUNCTION_FILE);       \
  constinit const FunctionFile ONNX_IRON_FUNCTIONS_OF(ONNX_IRON_FUNCTION_FILE) = { \
      nullptr, 0, kBinary<__VA_ARGS__>, std::size(kBinary<__VA_ARGS__>)};
