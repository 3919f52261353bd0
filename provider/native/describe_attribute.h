// What Python is told about a node's attribute.
#pragma once

#include "provider/native/json.h"
#include "provider/native/ort_api.h"
#include "provider/native/status.h"

namespace onnx_iron {

// Whether a call that may fail succeeds.
inline bool succeeds(ort::Status* status) {
  if (status == nullptr) return true;
  ort::ReleaseStatus(status);
  return false;
}

// Writes the value alone; whoever calls it has written the key.
void write_attribute(JsonWriter& json, const ort::Attribute* attribute);

}  // namespace onnx_iron
