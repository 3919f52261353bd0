// Dtypes, attributes, the registry of kernels, and the checks that all kernels share.
#include "kernels/cpu/kernel.h"

#include <map>

#include "kernels/cpu/checks.h"

namespace onnx_iron {
namespace {

struct Entry {
  Factory factory;
  ShapeRule shapes;
};

std::map<std::string, Entry, std::less<>>& registry() {
  static std::map<std::string, Entry, std::less<>> entries;
  return entries;
}

const Entry& entry_of(const Node& node) {
  const auto found = registry().find(node.op);
  require(found != registry().end(), node, "there is no CPU kernel for this op");
  return found->second;
}

template <typename T>
const char* kind_of() {
  if constexpr (std::is_same_v<T, int64_t>) return "an int";
  if constexpr (std::is_same_v<T, float>) return "a float";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  return "a list of ints";
}

template <typename T>
T value_of(const Attributes::Value* value, std::string_view name, std::optional<T> otherwise) {
  if (value == nullptr) {
    if (otherwise) return *std::move(otherwise);
    throw std::invalid_argument(text("attribute ", name, " is missing, expected ", kind_of<T>()));
  }
  const T* held = std::get_if<T>(value);
  if (held == nullptr) {
    const char* kind =
        std::visit([](const auto& v) { return kind_of<std::decay_t<decltype(v)>>(); }, *value);
    throw std::invalid_argument(
        text("attribute ", name, " is ", kind, ", expected ", kind_of<T>()));
  }
  return *held;
}

// Dimensions are untrusted: later products of them must not overflow.
void check_operand(const Node& node, const char* kind, size_t index, const Operand& operand) {
  if (!operand.present) return;
  size_of(operand.dtype);
  int64_t count = static_cast<int64_t>(size_of(operand.dtype));
  bool overflow = false;
  for (int64_t dim : operand.shape) {
    require(dim >= 0, node, kind, " ", index, " has shape ", text_of(operand.shape),
            ", expected no negative dimension");
    // Zeros are left out, so that (0, huge, huge) does not hide an overflow.
    overflow |= __builtin_mul_overflow(count, std::max<int64_t>(dim, 1), &count);
  }
  require(!overflow && count < (int64_t{1} << 48), node, kind, " ", index, " has shape ",
          text_of(operand.shape), ", expected less than 2**48 bytes");
}

void check_operands(const Node& node, const char* kind, const std::vector<Operand>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) check_operand(node, kind, i, operands[i]);
}

// body() for a node. A missing attribute does not know whose it is.
template <typename Body>
auto named(const Node& node, Body&& body) {
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    if (message.starts_with(node.op + ":")) throw;
    throw std::invalid_argument(text(node.op, ": ", message));
  }
}

}  // namespace

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      return 8;
    case DType::kBool:
    case DType::kUInt8:
      return 1;
    case DType::kBFloat16:
      return 2;
  }
  throw std::invalid_argument(
      text("dtype ", static_cast<int32_t>(dtype),
           " has no kernels, expected float32 (1), uint8 (2), int32 (6), int64 (7), bool (9) "
           "or bfloat16 (16)"));
}

int64_t element_count(const Shape& shape) { return product(shape, 0, shape.size()); }

void Attributes::set(std::string name, Value value) {
  values_.emplace_back(std::move(name), std::move(value));
}

const Attributes::Value* Attributes::find(std::string_view name) const {
  for (const auto& [held, value] : values_) {
    if (held == name) return &value;
  }
  return nullptr;
}

bool Attributes::has(std::string_view name) const { return find(name) != nullptr; }

int64_t Attributes::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  return value_of<int64_t>(find(name), name, otherwise);
}

float Attributes::real(std::string_view name, std::optional<float> otherwise) const {
  return value_of<float>(find(name), name, otherwise);
}

std::string Attributes::text(std::string_view name, std::optional<std::string> otherwise) const {
  return value_of<std::string>(find(name), name, std::move(otherwise));
}

std::vector<int64_t> Attributes::integers(std::string_view name,
                                          std::optional<std::vector<int64_t>> otherwise) const {
  return value_of<std::vector<int64_t>>(find(name), name, std::move(otherwise));
}

Registration::Registration(const char* op, Factory factory, ShapeRule shapes) {
  if (registry().try_emplace(op, Entry{factory, shapes}).second) return;
  throw std::logic_error(text("two CPU kernels are registered as ", op));
}

std::unique_ptr<Kernel> make_kernel(const Node& node) {
  const Entry& entry = entry_of(node);
  check_operands(node, "input", node.inputs);
  check_operands(node, "output", node.outputs);
  return named(node, [&] { return entry.factory(node); });
}

std::vector<Operand> infer_outputs(const Node& node) {
  const Entry& entry = entry_of(node);
  require(node.has_input(0), node, "input 0 is omitted, expected a tensor");
  check_operands(node, "input", node.inputs);
  std::vector<Operand> outputs;
  const std::vector<Shape> shapes = entry.shapes == nullptr
                                        ? std::vector<Shape>{node.inputs[0].shape}
                                        : named(node, [&] { return entry.shapes(node); });
  for (const Shape& shape : shapes) outputs.push_back({node.inputs[0].dtype, shape});
  return outputs;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry()) names.push_back(name);
  return names;
}

std::string text_of(const Shape& shape) {
  std::string out = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + (shape.size() == 1 ? ",)" : ")");
}

const char* text_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kUInt8:
      return "uint8";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "of an unknown dtype";
}

void check_inputs(const Node& node, size_t least, size_t most) {
  const size_t given = node.inputs.size();
  if (given < least || given > most) {
    fail(node, "it has ", given, " inputs, expected ", least,
         least == most ? "" : text("..", most));
  }
  for (size_t i = 0; i < least; ++i) {
    require(node.inputs[i].present, node, "input ", i, " is omitted, expected a tensor");
  }
}

void check_counts(const Node& node, size_t least, size_t most, size_t outputs) {
  check_inputs(node, least, most);
  require(node.outputs.size() == outputs, node, "it has ", node.outputs.size(),
          " outputs, expected ", outputs);
  require(node.outputs[0].present, node, "output 0 is omitted, expected a tensor");
}

void check_dtype(const Node& node, const char* name, const Operand& operand,
                 const std::vector<DType>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), operand.dtype) != allowed.end()) return;
  std::string expected;
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (i > 0) expected += i + 1 == allowed.size() ? " or " : ", ";
    expected += text_of(allowed[i]);
  }
  fail(node, name, " is ", text_of(operand.dtype), ", expected ", expected);
}

void check_real(const Node& node, const char* name, const Operand& operand) {
  check_dtype(node, name, operand, {DType::kFloat32, DType::kBFloat16});
}

void check_same_dtype(const Node& node, const char* name, const Operand& operand, const char* other,
                      const Operand& as) {
  require(operand.dtype == as.dtype, node, name, " is ", text_of(operand.dtype), ", expected ",
          text_of(as.dtype), " (as ", other, ")");
}

void check_shape(const Node& node, const char* name, const Operand& operand, const Shape& expected,
                 const std::string& because) {
  require(operand.shape == expected, node, name, " has shape ", text_of(operand.shape),
          ", expected ", text_of(expected), because);
}

void check_scalar(const Node& node, const char* name, const Operand& operand) {
  check_dtype(node, name, operand, {DType::kInt32});
  require(operand.shape.empty() || operand.shape == Shape{1}, node, name, " has shape ",
          text_of(operand.shape), ", expected () or (1,)");
}

int64_t axis_of(const Node& node, int64_t axis, size_t rank) {
  const int64_t dims = static_cast<int64_t>(rank);
  require(axis >= -dims && axis < dims, node, "axis is ", axis, ", expected ", -dims, "..",
          dims - 1, " (", dims, " dimensions)");
  return axis < 0 ? axis + dims : axis;
}

std::string choice_of(const Node& node, const char* name, const std::string& otherwise,
                      const std::vector<std::string>& allowed) {
  const std::string value = node.attributes.text(name, otherwise);
  std::string expected;
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (value == allowed[i]) return value;
    if (i > 0) expected += i + 1 == allowed.size() ? " or " : ", ";
    expected += text("'", allowed[i], "'");
  }
  fail(node, name, " is '", value, "', expected ", expected);
}

bool flag_of(const Node& node, const char* name, bool otherwise) {
  const int64_t value = node.attributes.integer(name, otherwise ? 1 : 0);
  require(value == 0 || value == 1, node, name, " is ", value, ", expected 0 or 1");
  return value == 1;
}

Shape broadcast_shape(const Node& node, const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    // Counted from the last dimension.
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    require(of_a == of_b || of_a == 1 || of_b == 1, node, "shapes ", text_of(a), " and ",
            text_of(b), " do not broadcast");
    result[result.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return result;
}

}  // namespace onnx_iron
