// What kernels check when they are made and at each call, and how they say what is wrong.
#pragma once

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

// Parts written one after another.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// (2, 3), (5,) or (), as numpy writes a shape.
std::string text_of(const Shape& shape);
const char* text_of(DType dtype);

template <typename... Parts>
[[noreturn]] void fail(const Node& node, const Parts&... parts) {
  throw std::invalid_argument(text(node.op, ": ", parts...));
}

template <typename... Parts>
void require(bool holds, const Node& node, const Parts&... parts) {
  if (!holds) fail(node, parts...);
}

inline bool is_real(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

// The node has `least`..`most` inputs, the first `least` of them present.
void check_inputs(const Node& node, size_t least, size_t most);
// The same, and it has `outputs` outputs.
void check_counts(const Node& node, size_t least, size_t most, size_t outputs = 1);
void check_dtype(const Node& node, const char* name, const Operand& operand,
                 const std::vector<DType>& allowed);
// The dtype T: float32 or bfloat16.
void check_real(const Node& node, const char* name, const Operand& operand);
void check_same_dtype(const Node& node, const char* name, const Operand& operand, const char* other,
                      const Operand& as);
// `because` continues "... , expected (2, 3)": " (as x)".
void check_shape(const Node& node, const char* name, const Operand& operand, const Shape& expected,
                 const std::string& because = "");
// A per-call value: int32, of shape () or (1,).
void check_scalar(const Node& node, const char* name, const Operand& operand);

// An axis counted from the front, of an operand with `rank` dimensions.
int64_t axis_of(const Node& node, int64_t axis, size_t rank);
// The attribute `name`, one of the values allowed.
std::string choice_of(const Node& node, const char* name, const std::string& otherwise,
                      const std::vector<std::string>& allowed);
bool flag_of(const Node& node, const char* name, bool otherwise);

// The shape that two broadcast to; fails where they do not.
Shape broadcast_shape(const Node& node, const Shape& a, const Shape& b);

// Where an input is, null where the node omits it; buffers has only the inputs that the node has.
inline const void* input_or_null(const Buffers& buffers, bool present, size_t index) {
  return present ? buffers.inputs[index] : nullptr;
}

// memcpy may not be given a null pointer even to copy nothing, and an empty tensor may have one.
inline void copy_some(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// memset, likewise.
inline void clear_some(void* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

// A per-call value, or `otherwise` where its operand is omitted.
inline int64_t scalar_at(const void* data, int64_t otherwise) {
  return data == nullptr ? otherwise : *static_cast<const int32_t*>(data);
}

// Product of the dimensions from..to-1.
inline int64_t product(const Shape& shape, size_t from, size_t to) {
  int64_t result = 1;
  for (size_t i = from; i < to; ++i) result *= shape[i];
  return result;
}

}  // namespace onnx_iron
