#include "host_kernels.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <stdexcept>

namespace onnx_iron::designs {
namespace {

template <typename F>
F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("no symbol ") + name);
  return reinterpret_cast<F>(found);
}

}  // namespace

const Kernels& Kernels::at(const char* path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Kernels>> loaded;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Kernels>& kernels = loaded[path];
  if (!kernels) kernels.reset(new Kernels(path));
  return *kernels;
}

const Kernels::Kernel& Kernels::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) throw std::invalid_argument("no kernel " + name);
  return found->second;
}

void Kernels::call(const Kernel& kernel, std::span<const Slot> slots,
                   std::span<const Region> regions) const {
  char error[512];
  if (call_(kernel.index, slots.data(), regions.data(), regions.size(), error, sizeof(error))) {
    throw std::out_of_range(error);
  }
}

Kernels::Kernels(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto count = symbol<size_t (*)()>(library, "onnx_iron_aie_count");
  const auto name = symbol<const char* (*)(size_t)>(library, "onnx_iron_aie_name");
  const auto signature = symbol<const char* (*)(size_t)>(library, "onnx_iron_aie_signature");
  call_ = symbol<decltype(call_)>(library, "onnx_iron_aie_call");
  for (size_t i = 0; i < count(); ++i) by_name_[name(i)] = {i, signature(i)};
}

}  // namespace onnx_iron::designs
