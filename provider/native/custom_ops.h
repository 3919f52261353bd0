// The operators of the domain onnx_iron as custom ops of onnxruntime, on the CPU kernels.
#pragma once

#include "provider/native/ort_api.h"

namespace onnx_iron {

// Makes a session know the domain.
void add_custom_ops(ort::SessionOptions* options);

}  // namespace onnx_iron
