// A subgraph's program on another device than the host. Python owns it, under a number; this is the
// hold that the native side has on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/c_api.h"

namespace onnx_iron {

class DeviceProgram {
 public:
  explicit DeviceProgram(int64_t number) : number_(number) {}
  // Python drops its program, if it is still there.
  ~DeviceProgram();

  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;

  // Returns false where the host is to run the call. Throws std::runtime_error where it failed.
  bool run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) const;

 private:
  int64_t number_;
};

}  // namespace onnx_iron

extern "C" {

// run returns 0 when the outputs are written, 1 when the host is to run the call, and 2 with a text
// in `error`. null takes both away, and waits for the calls that are under way.
ONNX_IRON_EXPORT void onnx_iron_set_device_runner(int (*run)(int64_t number,
                                                             const void* const* inputs,
                                                             void* const* outputs, char* error,
                                                             size_t size),
                                                  void (*release)(int64_t number));

}  // extern "C"
