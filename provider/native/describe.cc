#include "provider/native/describe.h"

#include <cstring>
#include <exception>
#include <unordered_map>
#include <unordered_set>

#include "kernels/cpu/kernel.h"
#include "provider/native/describe_attribute.h"
#include "provider/native/status.h"

namespace onnx_iron {
namespace {

constexpr int64_t kMaxConstantElements = 64;

// The list behind one of the API's count-and-fill pairs.
template <typename Item, typename Owner, typename Count, typename Fill>
std::vector<const Item*> list(const Owner* owner, Count count, Fill fill) {
  size_t size = 0;
  check(count(owner, &size));
  std::vector<const Item*> items(size);
  if (size > 0) check(fill(owner, items.data(), size));
  return items;
}

std::string text(ort::Status* status, const char* const& result) {
  check(status);
  return result == nullptr ? std::string() : std::string(result);
}

void write_integers(JsonWriter& json, const ort::ValueInfo* value, const ValueType& type) {
  const ort::Value* tensor = nullptr;
  check(ort::ValueInfo_GetInitializerValue(value, &tensor));
  if (tensor == nullptr) return;
  const void* data = nullptr;
  check(ort::GetTensorData(tensor, &data));
  json.key("data");
  json.begin_array();
  int64_t count = element_count(type.dims);
  for (int64_t i = 0; i < count; ++i) {
    if (type.dtype == static_cast<int32_t>(DType::kInt32)) {
      json.value(static_cast<int64_t>(static_cast<const int32_t*>(data)[i]));
    } else {
      json.value(static_cast<const int64_t*>(data)[i]);
    }
  }
  json.end_array();
}

bool is_small_integer(const ValueType& type) {
  bool integer = type.dtype == static_cast<int32_t>(DType::kInt32) ||
                 type.dtype == static_cast<int32_t>(DType::kInt64);
  if (!integer || !type.is_static()) return false;
  int64_t count = 1;
  for (int64_t dim : type.dims) {
    if (dim > kMaxConstantElements) return false;
    count *= dim;
    if (count > kMaxConstantElements) return false;
  }
  return true;
}

void write_value(JsonWriter& json, const ort::ValueInfo* value, const std::string& name) {
  ValueType type = type_of(value);
  json.begin_object();
  json.member("name", std::string_view(name));
  json.member("dtype", int64_t{type.dtype});
  json.key("dims");
  if (!type.has_rank) {
    json.null();
  } else {
    json.begin_array();
    for (size_t i = 0; i < type.dims.size(); ++i) {
      if (type.dims[i] >= 0) {
        json.value(type.dims[i]);
      } else {
        json.value(std::string_view(type.symbols[i]));
      }
    }
    json.end_array();
  }
  if (is_constant(value)) {
    json.member("constant", true);
    if (is_small_integer(type)) write_integers(json, value, type);
  }
  json.end_object();
}

// Keeps the values that a description mentions, each once. onnxruntime gives names as C strings:
// two values whose names differ only after a NUL look alike. Each gets a name of its own here, and
// whoever reads or writes one is told of it.
class Mentioned {
 public:
  void add(const std::vector<const ort::ValueInfo*>& values) {
    for (const ort::ValueInfo* value : values) {
      if (value == nullptr || names_.count(value) > 0) continue;
      std::string name = name_of(value);
      // The empty name is that of an omitted operand.
      bool fresh = first_.emplace(name, value).second;
      if (!fresh) alike_.insert(name);
      names_[value] = fresh ? name : name + std::string(1, '\0') + std::to_string(names_.size());
      if (!name.empty()) values_.push_back(value);
    }
  }
  // The values at the border may be those of the graph around: the name says which they are.
  void add_border(const std::vector<const ort::ValueInfo*>& values) {
    for (const ort::ValueInfo* value : values) {
      // onnxruntime has none for an input whose name is empty.
      if (value == nullptr || names_.count(value) > 0) continue;
      std::string name = name_of(value);
      if (first_.count(name) > 0) {
        names_[value] = name;
      } else {
        add({value});
      }
    }
  }
  // A name that several values have, of these; empty where there is none.
  std::string alike(const std::vector<const ort::ValueInfo*>& values) const {
    for (const ort::ValueInfo* value : values) {
      if (value == nullptr) continue;
      std::string name = name_of(value);
      if (!name.empty() && alike_.count(name) > 0) return name;
    }
    return {};
  }
  std::string name(const ort::ValueInfo* value) const {
    if (value == nullptr || name_of(value).empty()) return {};
    return names_.at(value);
  }
  void write_names(JsonWriter& json, const std::vector<const ort::ValueInfo*>& values) const {
    json.begin_array();
    for (const ort::ValueInfo* value : values) {
      std::string text = name(value);
      json.value(std::string_view(text));
    }
    json.end_array();
  }
  const std::vector<const ort::ValueInfo*>& values() const { return values_; }

 private:
  std::unordered_map<const ort::ValueInfo*, std::string> names_;
  std::unordered_map<std::string, const ort::ValueInfo*> first_;
  std::unordered_set<std::string> alike_;
  std::vector<const ort::ValueInfo*> values_;
};

std::vector<const ort::ValueInfo*> implicit_inputs_of(const ort::Node* node) {
  return list<ort::ValueInfo>(node, ort::Node_GetNumImplicitInputs, ort::Node_GetImplicitInputs);
}

// Whether one of the values that are there has no name as C reads it.
bool has_cut_name(const std::vector<const ort::ValueInfo*>& values) {
  for (const ort::ValueInfo* value : values) {
    if (value != nullptr && name_of(value).empty()) return true;
  }
  return false;
}

void write_node(JsonWriter& json, const ort::Node* node, const Mentioned& mentioned) {
  const char* result = nullptr;
  json.begin_object();
  json.member("name", std::string_view(text(ort::Node_GetName(node, &result), result)));
  json.member("domain", std::string_view(text(ort::Node_GetDomain(node, &result), result)));
  json.member("op_type", std::string_view(text(ort::Node_GetOperatorType(node, &result), result)));
  json.member("provider", std::string_view(text(ort::Node_GetEpName(node, &result), result)));
  int version = 0;
  check(ort::Node_GetSinceVersion(node, &version));
  json.member("since_version", int64_t{version});
  json.key("attributes");
  json.begin_object();
  std::string problem;
  for (const ort::Attribute* attribute :
       list<ort::Attribute>(node, ort::Node_GetNumAttributes, ort::Node_GetAttributes)) {
    const char* name = nullptr;
    check(ort::OpAttr_GetName(attribute, &name));
    // A name that was cut at a NUL is not found, or is another attribute's.
    const ort::Attribute* found = nullptr;
    if (!succeeds(ort::Node_GetAttributeByName(node, name, &found)) || found != attribute) {
      problem = "the name of its attribute '" + std::string(name) + "' has a NUL in it";
      continue;
    }
    json.key(name);
    try {
      write_attribute(json, attribute);
    } catch (const std::exception& error) {
      // It is read before anything of it is written. The node is left, the others go on.
      json.null();
      problem = "its attribute '" + std::string(name) + "' can't be read: " + error.what();
    }
  }
  json.end_object();
  for (const auto& values : {inputs_of(node), implicit_inputs_of(node), outputs_of(node)}) {
    if (has_cut_name(values)) problem = "the name of one of its values begins with a NUL";
    std::string name = mentioned.alike(values);
    if (!name.empty()) problem = "several values are called '" + name + "' up to a NUL";
  }
  json.member("problem", std::string_view(problem));
  json.key("inputs");
  mentioned.write_names(json, inputs_of(node));
  json.key("implicit_inputs");
  mentioned.write_names(json, implicit_inputs_of(node));
  json.key("outputs");
  mentioned.write_names(json, outputs_of(node));
  json.end_object();
}

}  // namespace

bool ValueType::is_static() const {
  if (dtype == 0 || !has_rank) return false;
  for (int64_t dim : dims) {
    if (dim < 0) return false;
  }
  return true;
}

std::string name_of(const ort::ValueInfo* value) {
  const char* name = nullptr;
  return text(ort::GetValueInfoName(value, &name), name);
}

ValueType type_of(const ort::ValueInfo* value) {
  ValueType type;
  const ort::TypeInfo* info = nullptr;
  check(ort::GetValueInfoTypeInfo(value, &info));
  if (info == nullptr) return type;
  int32_t kind = 0;
  check(ort::GetOnnxTypeFromTypeInfo(info, &kind));
  if (kind != ort::kTensor) return type;
  const ort::TensorInfo* tensor = nullptr;
  check(ort::CastTypeInfoToTensorInfo(info, &tensor));
  check(ort::GetTensorElementType(tensor, &type.dtype));
  type.has_rank = ort::TensorTypeAndShape_HasShape(tensor);
  if (!type.has_rank) return type;
  size_t rank = 0;
  check(ort::GetDimensionsCount(tensor, &rank));
  type.dims.resize(rank);
  std::vector<const char*> symbols(rank);
  if (rank > 0) {
    check(ort::GetDimensions(tensor, type.dims.data(), rank));
    check(ort::GetSymbolicDimensions(tensor, symbols.data(), rank));
  }
  for (const char* symbol : symbols) type.symbols.emplace_back(symbol == nullptr ? "" : symbol);
  return type;
}

std::string name_of(const ort::Graph* graph) {
  const char* name = nullptr;
  return text(ort::Graph_GetName(graph, &name), name);
}

bool is_constant(const ort::ValueInfo* value) {
  bool constant = false;
  check(ort::ValueInfo_IsConstantInitializer(value, &constant));
  return constant;
}

std::vector<const ort::Node*> nodes_of(const ort::Graph* graph) {
  return list<ort::Node>(graph, ort::Graph_GetNumNodes, ort::Graph_GetNodes);
}

std::vector<const ort::ValueInfo*> inputs_of(const ort::Node* node) {
  return list<ort::ValueInfo>(node, ort::Node_GetNumInputs, ort::Node_GetInputs);
}

std::vector<const ort::ValueInfo*> outputs_of(const ort::Node* node) {
  return list<ort::ValueInfo>(node, ort::Node_GetNumOutputs, ort::Node_GetOutputs);
}

std::vector<const ort::ValueInfo*> inputs_of(const ort::Graph* graph) {
  return list<ort::ValueInfo>(graph, ort::Graph_GetNumInputs, ort::Graph_GetInputs);
}

std::vector<const ort::ValueInfo*> outputs_of(const ort::Graph* graph) {
  return list<ort::ValueInfo>(graph, ort::Graph_GetNumOutputs, ort::Graph_GetOutputs);
}

void describe(JsonWriter& json, const ort::Graph* graph,
              const std::vector<const ort::ValueInfo*>& inputs,
              const std::vector<const ort::ValueInfo*>& outputs) {
  Mentioned mentioned;
  const char* result = nullptr;
  json.begin_object();
  json.member("name", std::string_view(text(ort::Graph_GetName(graph, &result), result)));
  const ort::Node* parent = nullptr;
  check(ort::Graph_GetParentNode(graph, &parent));
  json.member("nested", parent != nullptr);
  json.key("nodes");
  json.begin_array();
  std::vector<const ort::Node*> nodes = nodes_of(graph);
  for (const ort::Node* node : nodes) {
    mentioned.add(inputs_of(node));
    mentioned.add(implicit_inputs_of(node));
    mentioned.add(outputs_of(node));
  }
  mentioned.add_border(inputs);
  mentioned.add_border(outputs);
  for (const ort::Node* node : nodes) write_node(json, node, mentioned);
  json.end_array();
  json.key("inputs");
  mentioned.write_names(json, inputs);
  json.key("outputs");
  mentioned.write_names(json, outputs);
  json.key("values");
  json.begin_array();
  for (const ort::ValueInfo* value : mentioned.values())
    write_value(json, value, mentioned.name(value));
  json.end_array();
  json.end_object();
}

}  // namespace onnx_iron
