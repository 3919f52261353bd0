#include "contexts.h"

#include <errno.h>

#include <stdexcept>

#include "control.h"

namespace npu_driver {
namespace {

constexpr size_t kMostUnits = 32;  // as the driver has it

}  // namespace

int Contexts::create(int file, uint32_t columns, uint32_t* handle) {
  std::lock_guard lock(mutex_);
  if (fails(Fault::kContext)) return ENOENT;
  if (fails(Fault::kFirmware)) return EOPNOTSUPP;
  if (contexts_.size() >= machine().context_limit) return ENOENT;
  auto context = std::make_shared<Context>();
  context->file = file;
  context->columns = columns;
  *handle = next_handle_++;
  contexts_[*handle] = std::move(context);
  ++counters.contexts_made;
  ++counters.contexts_live;
  log("context %u made, %zu of %u", *handle, contexts_.size(), machine().context_limit);
  return 0;
}

int Contexts::configure(uint32_t handle, std::vector<Bytes> units) {
  if (units.size() > kMostUnits) return EINVAL;
  std::shared_ptr<Context> context = find(handle);
  if (context == nullptr || !context->units.empty()) return EINVAL;
  for (Bytes unit : units) {
    try {
      context->units.push_back(std::make_shared<Design>(unit));
    } catch (const std::exception& error) {
      // Nobody looks at a design before it is loaded, on a real machine either.
      log("context %u: %s", handle, error.what());
      context->units.push_back(nullptr);
    }
  }
  return 0;
}

int Contexts::destroy(uint32_t handle) {
  std::lock_guard lock(mutex_);
  if (contexts_.erase(handle) == 0) return EINVAL;
  --counters.contexts_live;
  log("context %u gone", handle);
  return 0;
}

std::vector<uint32_t> Contexts::of_file(int file) {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> handles;
  for (const auto& [handle, context] : contexts_) {
    if (context->file == file) handles.push_back(handle);
  }
  return handles;
}

std::shared_ptr<Context> Contexts::find(uint32_t handle) {
  std::lock_guard lock(mutex_);
  auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : found->second;
}

}  // namespace npu_driver
