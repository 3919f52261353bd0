// What a host library of kernels exports, besides the kernels themselves: C functions that list
// them and call one by name.
#include <aie_api/aie.hpp>
#include <algorithm>
#include <cstring>
#include <exception>
#include <span>

#include "registry.h"

namespace onnx_iron::aie_host {

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

namespace {

class Checked {
 public:
  explicit Checked(std::span<const aie::host::Region> regions) : regions_(regions) {
    aie::host::regions = &regions_;
  }
  ~Checked() {
    aie::host::regions = nullptr;
    aie::set_rounding(aie::rounding_mode::floor);
  }
  Checked(const Checked&) = delete;
  Checked& operator=(const Checked&) = delete;

 private:
  std::span<const aie::host::Region> regions_;
};

}  // namespace
}  // namespace onnx_iron::aie_host

extern "C" {

// How many kernels there are; name and signature of each.
__attribute__((visibility("default"))) size_t onnx_iron_aie_count() {
  return onnx_iron::aie_host::entries().size();
}
__attribute__((visibility("default"))) const char* onnx_iron_aie_name(size_t index) {
  return onnx_iron::aie_host::entries().at(index).name.c_str();
}
__attribute__((visibility("default"))) const char* onnx_iron_aie_signature(size_t index) {
  return onnx_iron::aie_host::entries().at(index).signature.c_str();
}

// Calls a kernel that may touch these regions only. Returns 0, or 1 with the reason in `error`.
__attribute__((visibility("default"))) int onnx_iron_aie_call(
    size_t index, const onnx_iron::aie_host::Argument* arguments, const aie::host::Region* regions,
    size_t region_count, char* error, size_t error_bytes) {
  try {
    const onnx_iron::aie_host::Entry& entry = onnx_iron::aie_host::entries().at(index);
    const onnx_iron::aie_host::Checked checked({regions, region_count});
    entry.call(arguments);
    if (aie::get_rounding() != aie::rounding_mode::floor) {
      throw std::logic_error("the rounding mode was not restored");
    }
    return 0;
  } catch (const std::exception& caught) {
    const size_t length = std::min(std::strlen(caught.what()), error_bytes - 1);
    std::memcpy(error, caught.what(), length);
    error[length] = '\0';
    return 1;
  }
}
}
