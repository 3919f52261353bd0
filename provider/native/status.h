// onnxruntime's statuses and C++ exceptions, turned into one another at the border; whose an error
// is.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "provider/native/ort_api.h"

namespace onnx_iron {

// Throws the text of a status that is an error.
inline void check(ort::Status* status) {
  if (status == nullptr) return;
  std::string message = ort::GetErrorMessage(status);
  ort::ReleaseStatus(status);
  throw std::runtime_error(message);
}

// "Embedding: ids[2] is 7" -> "Embedding 'node': ids[2] is 7".
inline std::string with_node_name(const std::string& message, const std::string& op,
                                  const std::string& name) {
  std::string_view rest = message;
  if (rest.substr(0, op.size()) == op) rest.remove_prefix(op.size());
  std::string separator = !rest.empty() && (rest[0] == ':' || rest[0] == '.') ? "" : ": ";
  std::string node = name.empty() ? op : op + " '" + name + "'";
  return node + separator + std::string(rest);
}

// Runs body() for a caller in C: an exception becomes a status.
template <typename Body>
ort::Status* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const std::invalid_argument& error) {
    return ort::CreateStatus(ort::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return ort::CreateStatus(ort::kFail, error.what());
  } catch (...) {
    return ort::CreateStatus(ort::kFail, "onnx-iron: an unknown C++ exception");
  }
}

}  // namespace onnx_iron
