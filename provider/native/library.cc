// What the library exports to onnxruntime.
#include "kernels/cpu/c_api.h"
#include "kernels/cpu/loops.h"
#include "provider/native/custom_ops.h"
#include "provider/native/ort_api.h"
#include "provider/native/provider.h"
#include "provider/native/status.h"

using namespace onnx_iron;

namespace {

// The slots that every table of kCustomOpApiVersion has.
constexpr size_t kCustomOpSlots = 275;

// Says which of the declared functions a table lacks; the first `slots` of it can be read.
ort::Status* check_slots(const ort::ApiBase* base, const void* const* const* table,
                         size_t slots = SIZE_MAX) {
  for (const ort::Declared& function : ort::declared_functions()) {
    if (function.table != table || function.slot >= slots) continue;
    if ((*table)[function.slot] != nullptr) continue;
    std::string message = "onnx-iron needs " + std::string(function.name) + " of onnxruntime's C " +
                          "API, and onnxruntime " + base->GetVersionString() +
                          " as it is loaded here lacks it; use a full build of onnxruntime";
    return ort::CreateStatus(ort::kFail, message.c_str());
  }
  return nullptr;
}

// Takes onnxruntime's API, whose table is one and the same for every version; null, or what to say
// where it is too old.
ort::Status* take_api(const ort::ApiBase* base, uint32_t version) {
  const void* const* table = base->GetApi(version);
  const void* const* oldest = base->GetApi(1);
  // Not written again while sessions run.
  if (ort::api_table != oldest) ort::api_table = oldest;
  if (table != nullptr) return nullptr;
  std::string message = "onnx-iron needs onnxruntime 1." + std::to_string(version) +
                        " or newer, this one is " + std::string(base->GetVersionString());
  return ort::CreateStatus(ort::kFail, message.c_str());
}

}  // namespace

extern "C" {

ONNX_IRON_EXPORT ort::Status* CreateEpFactories(const char* /*registered_name*/,
                                                const ort::ApiBase* base,
                                                const ort::Logger* /*logger*/,
                                                ort::FactoryTable** factories, size_t capacity,
                                                size_t* written) {
  *written = 0;
  if (ort::Status* too_old = take_api(base, ort::kApiVersion)) return too_old;
  if (ort::Status* lacking = check_slots(base, &ort::api_table)) return lacking;
  ort::ep_api_table = ort::GetEpApi();
  if (ort::ep_api_table == nullptr) {
    return ort::CreateStatus(ort::kFail, "onnx-iron: this onnxruntime takes no plugin providers");
  }
  if (ort::Status* lacking = check_slots(base, &ort::ep_api_table)) return lacking;
  if (capacity == 0) return ort::CreateStatus(ort::kFail, "onnx-iron: no room for a factory");
  return guarded([&] {
    loops();  // where ONNX_IRON_CPU is wrong, this is the place to say so
    // Sessions that are still open when somebody unregisters the library are closed through it.
    static ProviderFactory factory;
    factories[0] = &factory;
    *written = 1;
  });
}

ONNX_IRON_EXPORT ort::Status* ReleaseEpFactory(ort::FactoryTable* /*factory*/) { return nullptr; }

ONNX_IRON_EXPORT ort::Status* RegisterCustomOps(ort::SessionOptions* options,
                                                const ort::ApiBase* base) {
  if (ort::Status* too_old = take_api(base, ort::kCustomOpApiVersion)) return too_old;
  if (ort::Status* lacking = check_slots(base, &ort::api_table, kCustomOpSlots)) return lacking;
  return guarded([&] {
    loops();  // likewise
    add_custom_ops(options);
  });
}

}  // extern "C"
