#include "designs.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace npu_driver {
namespace {

constexpr size_t kMostValues = 64;
constexpr size_t kMostBuffers = 16;
constexpr uint8_t kPoison = 0xff;  // all ones is NaN

// kernels/designs/interpreter.h; the simulator is built on its own, so it is loaded, not linked.
using RunDesign = int (*)(const void* design, size_t design_bytes, const char* kernels,
                          void* const* buffers, const size_t* sizes, const int32_t* values,
                          uint8_t poison, char* error, size_t error_bytes);

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return value;
}

RunDesign interpreter() {
  static const RunDesign found = [] {
    void* library = dlopen(variable("NPU_DRIVER_INTERPRETER"), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    void* symbol = dlsym(library, "onnx_iron_run_design");
    if (symbol == nullptr) throw std::runtime_error("the interpreter has no onnx_iron_run_design");
    return reinterpret_cast<RunDesign>(symbol);
  }();
  return found;
}

bool begins_with_magic(Bytes bytes) {
  return bytes.size >= sizeof kMagic && std::memcmp(bytes.data, kMagic, sizeof kMagic) == 0;
}

}  // namespace

Design::Design(Bytes pdi) {
  size_t at = 0;
  auto take = [&](void* to, size_t size) {
    if (size > pdi.size - at) throw std::runtime_error("the design is cut short");
    std::memcpy(to, pdi.data + at, size);
    at += size;
  };
  auto number = [&] {
    uint64_t read = 0;
    take(&read, sizeof read);
    return read;
  };
  if (!begins_with_magic(pdi)) {
    throw std::runtime_error("the bytes are no design of the simulator's");
  }
  at = sizeof kMagic;
  take(digest_.data(), sizeof digest_);
  sizes_.resize(std::min<uint64_t>(number(), kMostBuffers));
  for (size_t& size : sizes_) size = number();
  uint64_t length = number();
  if (length > pdi.size - at) throw std::runtime_error("the design is cut short");
  design_.resize(length);
  take(design_.data(), length);
}

void Design::run(Bytes instructions, const std::vector<Bytes>& buffers) const {
  constexpr size_t kValues = sizeof kMagic + sizeof(Digest);
  if (instructions.size < kValues || !begins_with_magic(instructions) ||
      std::memcmp(instructions.data + sizeof kMagic, digest_.data(), sizeof digest_) != 0) {
    throw std::runtime_error("the instructions are not this design's");
  }
  int32_t values[kMostValues] = {};
  std::memcpy(values, instructions.data + kValues,
              std::min(instructions.size - kValues, sizeof values));
  if (buffers.size() < sizes_.size()) throw std::runtime_error("a run with too few buffers");
  std::vector<void*> starts;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    // Past a buffer's end there is memory of somebody else, or none: the transfers would fail.
    if (buffers[i].size < sizes_[i]) throw std::runtime_error("a buffer is too small");
    starts.push_back(buffers[i].data);
  }
  char error[512] = "";
  if (interpreter()(design_.data(), design_.size(), variable("NPU_DRIVER_KERNELS"), starts.data(),
                    sizes_.data(), values, kPoison, error, sizeof error) != 0) {
    throw std::runtime_error(error);
  }
}

}  // namespace npu_driver
