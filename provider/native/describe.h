// What Python is told about a graph of onnxruntime's: names, dtypes, shapes, attributes and the
// contents of small integer constants. Weights are never read.
#pragma once

#include <string>
#include <vector>

#include "provider/native/json.h"
#include "provider/native/ort_api.h"

namespace onnx_iron {

// A value's type: dtype 0 is no tensor; a dim of -1 is not known before the call.
struct ValueType {
  int32_t dtype = 0;
  bool has_rank = false;
  std::vector<int64_t> dims;
  std::vector<std::string> symbols;

  bool is_static() const;
};

std::string name_of(const ort::ValueInfo* value);
std::string name_of(const ort::Graph* graph);
ValueType type_of(const ort::ValueInfo* value);
bool is_constant(const ort::ValueInfo* value);

std::vector<const ort::Node*> nodes_of(const ort::Graph* graph);
std::vector<const ort::ValueInfo*> inputs_of(const ort::Node* node);
std::vector<const ort::ValueInfo*> outputs_of(const ort::Node* node);
std::vector<const ort::ValueInfo*> inputs_of(const ort::Graph* graph);
std::vector<const ort::ValueInfo*> outputs_of(const ort::Graph* graph);

// Writes the members "name", "nested", "nodes" (in nodes_of's order), "values", "inputs" and
// "outputs" (the names of the given values) as one object.
void describe(JsonWriter& json, const ort::Graph* graph,
              const std::vector<const ort::ValueInfo*>& inputs,
              const std::vector<const ort::ValueInfo*>& outputs);

}  // namespace onnx_iron
