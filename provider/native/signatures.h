// What the operators of the domain onnx_iron take and give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "provider/native/ort_api.h"

namespace onnx_iron {

// Which dtypes an input takes: T is float32 or bfloat16, the same for all inputs and outputs; any
// is T, or an int32, int64 or bool that is moved; a number is T, int32 or int64; what is said to be
// float32 is that whatever T is.
enum class InputKind { kT, kTOrFloat32, kFloat32, kAny, kNumber, kBool, kIndex, kScalar };

struct InputSignature {
  const char* name;
  InputKind kind;
  bool optional;
};

struct OutputSignature {
  const char* name;
  std::optional<DType> dtype;  // nothing: the inputs'
};

struct AttributeSignature {
  const char* name;
  ort::AttributeKind kind;
  std::optional<Attributes::Value> otherwise;  // nothing: the attribute may be absent
};

struct Signature {
  std::string op;
  std::vector<InputSignature> inputs;
  std::vector<OutputSignature> outputs;
  std::vector<AttributeSignature> attributes;
};

// Every operator, as its declaration in onnx_iron/operators says.
const std::vector<Signature>& signatures();

}  // namespace onnx_iron
