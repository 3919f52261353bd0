// onnxruntime's statuses and C++ exceptions, turned into one another at the border.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "provider/native/ort_api.h"

namespace onnx_iron {

// Throws the text of a status that is an error.
inline void check(ort::Status* status) {
  if (status == nullptr) return;
  std::string message = ort::GetErrorMessage(status);
  ort::ReleaseStatus(status);
  throw std::runtime_error(message);
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
