// Finds a kernel by name and calls it with arguments that are only known at run time.
//
// ONNX_IRON_KERNEL(name) at a kernel file's end enters an entry point; a core's compiler sees
// nothing of it. The parameters' types make the signature, a letter each, a capital where the
// kernel writes: b/B bfloat16, f/F float behind a pointer, and i int32, r float by value.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace onnx_iron::aie_host {

union Argument {
  void* pointer;
  int32_t integer;
  float real;
};

struct Entry {
  std::string name;
  std::string signature;
  void (*call)(const Argument* arguments);
};

// Every kernel of the library, in no order.
std::vector<Entry>& entries();

template <typename T>
constexpr char letter() {
  if constexpr (std::same_as<T, int32_t>) return 'i';
  if constexpr (std::same_as<T, float>) return 'r';
  using Pointee = std::remove_pointer_t<T>;
  if constexpr (std::same_as<Pointee, const bfloat16>) return 'b';
  if constexpr (std::same_as<Pointee, bfloat16>) return 'B';
  if constexpr (std::same_as<Pointee, const float>) return 'f';
  if constexpr (std::same_as<Pointee, float>) return 'F';
}

template <typename T>
T take(const Argument& argument) {
  if constexpr (std::same_as<T, int32_t>) {
    return argument.integer;
  } else if constexpr (std::same_as<T, float>) {
    return argument.real;
  } else {
    return static_cast<T>(argument.pointer);
  }
}

template <auto Function>
struct Thunk;

template <typename... Parameters, void (*Function)(Parameters...)>
struct Thunk<Function> {
  template <size_t... I>
  static void spread(const Argument* arguments, std::index_sequence<I...>) {
    Function(take<Parameters>(arguments[I])...);
  }
  static void call(const Argument* arguments) {
    spread(arguments, std::index_sequence_for<Parameters...>{});
  }
  static std::string signature() { return {letter<Parameters>()...}; }
};

struct Registration {
  template <auto Function>
  static bool of(const char* name) {
    entries().push_back({name, Thunk<Function>::signature(), Thunk<Function>::call});
    return true;
  }
};

}  // namespace onnx_iron::aie_host

#define ONNX_IRON_KERNEL(name)                        \
  [[maybe_unused]] static const bool name##_entered = \
      onnx_iron::aie_host::Registration::of<name>(#name);
