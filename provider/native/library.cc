// What the library exports to onnxruntime.
#include "kernels/cpu/c_api.h"
#include "provider/native/ort_api.h"
#include "provider/native/provider.h"
#include "provider/native/status.h"

using namespace onnx_iron;

extern "C" {

ONNX_IRON_EXPORT ort::Status* CreateEpFactories(const char* /*registered_name*/,
                                                const ort::ApiBase* base,
                                                const ort::Logger* /*logger*/,
                                                ort::FactoryTable** factories, size_t capacity,
                                                size_t* written) {
  *written = 0;
  const void* const* oldest = base->GetApi(1);
  ort::api_table = base->GetApi(ort::kApiVersion);
  if (ort::api_table == nullptr) {
    ort::api_table = oldest;
    std::string message = "onnx-iron needs onnxruntime 1.24 or newer, this one is " +
                          std::string(base->GetVersionString());
    return ort::CreateStatus(ort::kFail, message.c_str());
  }
  ort::ep_api_table = ort::GetEpApi();
  if (capacity == 0) return ort::CreateStatus(ort::kFail, "onnx-iron: no room for a factory");
  return guarded([&] {
    factories[0] = new ProviderFactory();
    *written = 1;
  });
}

ONNX_IRON_EXPORT ort::Status* ReleaseEpFactory(ort::FactoryTable* factory) {
  delete static_cast<ProviderFactory*>(factory);
  return nullptr;
}

}  // extern "C"
