#include "designs.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace npu_driver {
namespace {

constexpr size_t kMostValues = 64;
constexpr size_t kMostBuffers = 64;
constexpr size_t kMostDesigns = 4096;
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

// Takes an instruction stream apart.
struct Reader {
  Bytes left;

  Bytes take(size_t size) {
    if (size > left.size) throw std::runtime_error("the instructions are cut short");
    Bytes taken{left.data, size};
    left = {left.data + size, left.size - size};
    return taken;
  }
  size_t number(size_t most) {
    uint64_t read = 0;
    std::memcpy(&read, take(sizeof read).data, sizeof read);
    if (read > most) throw std::runtime_error("the instructions have a number that is too big");
    return read;
  }
};

}  // namespace

Design::Design(Bytes pdi) {
  if (!begins_with_magic(pdi)) {
    throw std::runtime_error("the bytes are no design of the simulator's");
  }
  if (pdi.size < sizeof kMagic + sizeof(Digest)) {
    throw std::runtime_error("the design is cut short");
  }
  std::memcpy(digest_.data(), pdi.data + sizeof kMagic, sizeof digest_);
}

void Design::run(Bytes instructions, const std::vector<Bytes>& buffers) const {
  constexpr size_t kHead = sizeof kMagic + sizeof(Digest);
  if (instructions.size < kHead || !begins_with_magic(instructions) ||
      std::memcmp(instructions.data + sizeof kMagic, digest_.data(), sizeof digest_) != 0) {
    throw std::runtime_error("the instructions are not this design's");
  }
  Reader reader{{instructions.data + kHead, instructions.size - kHead}};
  for (size_t n = reader.number(kMostDesigns); n > 0; --n) {
    const size_t length = reader.number(SIZE_MAX);
    const size_t count = reader.number(kMostBuffers);
    Reader part{reader.take(length)};
    std::vector<size_t> numbers(count), sizes;
    for (size_t& number : numbers) number = part.number(buffers.size());
    if (part.number(kMostBuffers) != count) throw std::runtime_error("a run with too few buffers");
    std::vector<void*> starts;
    for (size_t number : numbers) {
      sizes.push_back(part.number(SIZE_MAX));
      // Past a buffer's end there is memory of somebody else, or none: the transfers would fail.
      if (number >= buffers.size() || buffers[number].size < sizes.back()) {
        throw std::runtime_error("a buffer is too small");
      }
      starts.push_back(buffers[number].data);
    }
    const Bytes design = part.take(part.number(SIZE_MAX));
    int32_t values[kMostValues] = {};
    std::memcpy(values, part.left.data, std::min(part.left.size, sizeof values));
    char error[512] = "";
    if (interpreter()(design.data, design.size, variable("NPU_DRIVER_KERNELS"), starts.data(),
                      sizes.data(), values, kPoison, error, sizeof error) != 0) {
      throw std::runtime_error(error);
    }
  }
}

}  // namespace npu_driver
