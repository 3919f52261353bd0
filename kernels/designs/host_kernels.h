// The kernels as built for the host, called by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace onnx_iron::designs {

union Slot {
  void* pointer;
  int32_t integer;
  float real;
};

// As kernels/aie/host lays it out.
struct Region {
  const std::byte* begin;
  size_t bytes;
  bool writable;
};

// A host library of kernels, loaded once and kept.
class Kernels {
 public:
  struct Kernel {
    size_t index;
    std::string signature;
  };

  // The library at a path. Throws std::runtime_error where it can't be loaded.
  static const Kernels& at(const char* path);

  // Throws std::invalid_argument where there is none of that name.
  const Kernel& find(const std::string& name) const;

  // Runs a kernel, which may touch these regions only. Throws std::out_of_range with what the host
  // model objects to.
  void call(const Kernel& kernel, std::span<const Slot> slots,
            std::span<const Region> regions) const;

 private:
  explicit Kernels(const char* path);

  int (*call_)(size_t, const Slot*, const Region*, size_t, char*, size_t);
  std::map<std::string, Kernel> by_name_;
};

}  // namespace onnx_iron::designs
