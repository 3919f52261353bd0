// The part of onnxruntime's C API that the provider uses, declared here by slot: every table of
// that API is a row of function pointers that only grows, so a slot's number and signature never
// change.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_iron::ort {

// The API version whose slots are declared below: onnxruntime 1.24 and everything after it.
inline constexpr uint32_t kApiVersion = 24;
// The one whose slots custom ops and threads use: onnxruntime 1.17 and everything after it.
inline constexpr uint32_t kCustomOpApiVersion = 17;

struct Status;
struct Graph;
struct Node;
struct Value;
struct ValueInfo;
struct TypeInfo;
struct TensorInfo;
struct Attribute;
struct KernelContext;
struct KernelInfo;
struct CustomOpDomain;
struct CustomOpTable;
struct KeyValuePairs;
struct HardwareDevice;
struct EpDevice;
struct SupportInfo;
struct SessionOptions;
struct Logger;
struct ComputeContext;

// ---- tables that onnxruntime gives ----

struct ApiBase {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

inline const void* const* api_table = nullptr;
inline const void* const* ep_api_table = nullptr;

template <const void* const** table, size_t slot, typename Signature>
struct Call;

template <const void* const** table, size_t slot, typename Result, typename... Arguments>
struct Call<table, slot, Result(Arguments...)> {
  static constexpr size_t kSlot = slot;
  Result operator()(Arguments... arguments) const {
    auto function = reinterpret_cast<Result (*)(Arguments...)>(const_cast<void*>((*table)[slot]));
    return function(arguments...);
  }
};

template <size_t slot, typename Signature>
using ApiCall = Call<&api_table, slot, Signature>;
template <size_t slot, typename Signature>
using EpApiCall = Call<&ep_api_table, slot, Signature>;

enum ErrorCode : int32_t { kFail = 1, kInvalidArgument = 2 };
enum OnnxType : int32_t { kTensor = 1 };
enum DeviceType : int32_t { kCpu = 0, kGpu = 1, kNpu = 2 };
enum AttributeKind : int32_t {
  kInt = 1,
  kInts = 2,
  kFloat = 3,
  kFloats = 4,
  kString = 5,
  kStrings = 6
};

inline constexpr ApiCall<0, Status*(int32_t code, const char* message)> CreateStatus;
inline constexpr ApiCall<2, const char*(const Status*)> GetErrorMessage;
inline constexpr ApiCall<26, Status*(const char* domain, CustomOpDomain**)> CreateCustomOpDomain;
inline constexpr ApiCall<27, Status*(CustomOpDomain*, const CustomOpTable*)> CustomOpDomain_Add;
inline constexpr ApiCall<28, Status*(SessionOptions*, CustomOpDomain*)> AddCustomOpDomain;
inline constexpr ApiCall<51, Status*(Value*, void** data)> GetTensorMutableData;
inline constexpr ApiCall<55, Status*(const TypeInfo*, const TensorInfo**)> CastTypeInfoToTensorInfo;
inline constexpr ApiCall<56, Status*(const TypeInfo*, int32_t* onnx_type)> GetOnnxTypeFromTypeInfo;
inline constexpr ApiCall<60, Status*(const TensorInfo*, int32_t* dtype)> GetTensorElementType;
inline constexpr ApiCall<61, Status*(const TensorInfo*, size_t* rank)> GetDimensionsCount;
inline constexpr ApiCall<62, Status*(const TensorInfo*, int64_t* dims, size_t rank)> GetDimensions;
inline constexpr ApiCall<63, Status*(const TensorInfo*, const char** names, size_t rank)>
    GetSymbolicDimensions;
inline constexpr ApiCall<65, Status*(const Value*, TensorInfo**)> GetTensorTypeAndShape;
inline constexpr ApiCall<85, Status*(const KernelInfo*, const char* name, float*)>
    KernelInfoGetAttribute_float;
inline constexpr ApiCall<86, Status*(const KernelInfo*, const char* name, int64_t*)>
    KernelInfoGetAttribute_int64;
inline constexpr ApiCall<87,
                         Status*(const KernelInfo*, const char* name, char* text, size_t* bytes)>
    KernelInfoGetAttribute_string;
inline constexpr ApiCall<88, Status*(const KernelContext*, size_t*)> KernelContext_GetInputCount;
inline constexpr ApiCall<90, Status*(const KernelContext*, size_t index, const Value**)>
    KernelContext_GetInput;
inline constexpr ApiCall<91, Status*(KernelContext*, size_t index, const int64_t* dims, size_t rank,
                                     Value**)>
    KernelContext_GetOutput;
inline constexpr ApiCall<93, void(Status*)> ReleaseStatus;
inline constexpr ApiCall<99, void(TensorInfo*)> ReleaseTensorTypeAndShapeInfo;
inline constexpr ApiCall<163, Status*(const KernelInfo*, const char* name, int64_t* values,
                                      size_t* count)>
    KernelInfoGetAttributeArray_int64;
inline constexpr ApiCall<244, Status*(const KernelInfo*, char* name, size_t* bytes)>
    KernelInfo_GetNodeName;
inline constexpr ApiCall<272, Status*(const Attribute*, int32_t kind, void* data, size_t bytes,
                                      size_t* needed)>
    ReadOpAttr;
inline constexpr ApiCall<274, Status*(const KernelContext*, void (*task)(void*, size_t),
                                      size_t tasks, size_t batches, void* context)>
    KernelContext_ParallelFor;
inline constexpr ApiCall<289, Status*(const ValueInfo*, const char**)> GetValueInfoName;
inline constexpr ApiCall<290, Status*(const ValueInfo*, const TypeInfo**)> GetValueInfoTypeInfo;
inline constexpr ApiCall<298, void(const KeyValuePairs*, const char* const** keys,
                                   const char* const** values, size_t* count)>
    GetKeyValuePairs;
inline constexpr ApiCall<300, void(KeyValuePairs*)> ReleaseKeyValuePairs;
inline constexpr ApiCall<307, int32_t(const HardwareDevice*)> HardwareDevice_Type;
inline constexpr ApiCall<308, uint32_t(const HardwareDevice*)> HardwareDevice_VendorId;
inline constexpr ApiCall<317, const void* const*()> GetEpApi;
inline constexpr ApiCall<326, Status*(const ValueInfo*, const Value**)>
    ValueInfo_GetInitializerValue;
inline constexpr ApiCall<331, Status*(const ValueInfo*, bool*)> ValueInfo_IsConstantInitializer;
inline constexpr ApiCall<333, Status*(const Graph*, const char**)> Graph_GetName;
inline constexpr ApiCall<338, Status*(const Graph*, size_t*)> Graph_GetNumInputs;
inline constexpr ApiCall<339, Status*(const Graph*, const ValueInfo**, size_t)> Graph_GetInputs;
inline constexpr ApiCall<340, Status*(const Graph*, size_t*)> Graph_GetNumOutputs;
inline constexpr ApiCall<341, Status*(const Graph*, const ValueInfo**, size_t)> Graph_GetOutputs;
inline constexpr ApiCall<344, Status*(const Graph*, size_t*)> Graph_GetNumNodes;
inline constexpr ApiCall<345, Status*(const Graph*, const Node**, size_t)> Graph_GetNodes;
inline constexpr ApiCall<346, Status*(const Graph*, const Node**)> Graph_GetParentNode;
inline constexpr ApiCall<349, Status*(const Node*, const char**)> Node_GetName;
inline constexpr ApiCall<350, Status*(const Node*, const char**)> Node_GetOperatorType;
inline constexpr ApiCall<351, Status*(const Node*, const char**)> Node_GetDomain;
inline constexpr ApiCall<352, Status*(const Node*, int*)> Node_GetSinceVersion;
inline constexpr ApiCall<353, Status*(const Node*, size_t*)> Node_GetNumInputs;
inline constexpr ApiCall<354, Status*(const Node*, const ValueInfo**, size_t)> Node_GetInputs;
inline constexpr ApiCall<355, Status*(const Node*, size_t*)> Node_GetNumOutputs;
inline constexpr ApiCall<356, Status*(const Node*, const ValueInfo**, size_t)> Node_GetOutputs;
inline constexpr ApiCall<357, Status*(const Node*, size_t*)> Node_GetNumImplicitInputs;
inline constexpr ApiCall<358, Status*(const Node*, const ValueInfo**, size_t)>
    Node_GetImplicitInputs;
inline constexpr ApiCall<359, Status*(const Node*, size_t*)> Node_GetNumAttributes;
inline constexpr ApiCall<360, Status*(const Node*, const Attribute**, size_t)> Node_GetAttributes;
inline constexpr ApiCall<361, Status*(const Node*, const char* name, const Attribute**)>
    Node_GetAttributeByName;
inline constexpr ApiCall<363, Status*(const Attribute*, int32_t* kind)> OpAttr_GetType;
inline constexpr ApiCall<364, Status*(const Attribute*, const char**)> OpAttr_GetName;
inline constexpr ApiCall<368, Status*(const Node*, const char**)> Node_GetEpName;
inline constexpr ApiCall<378, Status*(const Value*, const void** data)> GetTensorData;
inline constexpr ApiCall<379, Status*(const SessionOptions*, KeyValuePairs**)>
    GetSessionOptionsConfigEntries;
inline constexpr ApiCall<390, bool(const TensorInfo*)> TensorTypeAndShape_HasShape;
inline constexpr ApiCall<414,
                         Status*(const Value*, int32_t* dtype, const int64_t** dims, size_t* rank)>
    GetTensorElementTypeAndShapeDataReference;

struct FusionOptions {
  uint32_t version = kApiVersion;
  bool drop_constant_initializers = false;
};

struct FactoryTable;

inline constexpr EpApiCall<0, Status*(FactoryTable*, const HardwareDevice*,
                                      const KeyValuePairs* metadata, const KeyValuePairs* options,
                                      EpDevice**)>
    CreateEpDevice;
inline constexpr EpApiCall<2,
                           Status*(SupportInfo*, const Node* const*, size_t, const FusionOptions*)>
    EpGraphSupportInfo_AddNodesToFuse;

// ---- tables that the provider gives: members that stay null are features it does not have ----

struct ComputeTable {
  uint32_t version = kApiVersion;
  Status* (*CreateState)(ComputeTable*, ComputeContext*, void** state) = nullptr;
  Status* (*Compute)(ComputeTable*, void* state, KernelContext*) = nullptr;
  void (*ReleaseState)(ComputeTable*, void* state) = nullptr;
};

struct EpTable {
  uint32_t version = kApiVersion;
  const char* (*GetName)(const EpTable*) = nullptr;
  Status* (*GetCapability)(EpTable*, const Graph*, SupportInfo*) = nullptr;
  Status* (*Compile)(EpTable*, const Graph** graphs, const Node** fused_nodes, size_t count,
                     ComputeTable** compute, Node** context_nodes) = nullptr;
  void (*ReleaseNodeComputeInfos)(EpTable*, ComputeTable**, size_t count) = nullptr;
  const void* unused[20] = {};
};

struct FactoryTable {
  uint32_t version = kApiVersion;
  const char* (*GetName)(const FactoryTable*) = nullptr;
  const char* (*GetVendor)(const FactoryTable*) = nullptr;
  Status* (*GetSupportedDevices)(FactoryTable*, const HardwareDevice* const*, size_t count,
                                 EpDevice** devices, size_t capacity, size_t* written) = nullptr;
  Status* (*CreateEp)(FactoryTable*, const HardwareDevice* const*, const KeyValuePairs* const*,
                      size_t count, const SessionOptions*, const Logger*, EpTable**) = nullptr;
  void (*ReleaseEp)(FactoryTable*, EpTable*) = nullptr;
  uint32_t (*GetVendorId)(const FactoryTable*) = nullptr;
  const char* (*GetVersion)(const FactoryTable*) = nullptr;
  const void* unused_compatibility[3] = {};
  Status* (*CreateDataTransfer)(FactoryTable*, void** transfer) = nullptr;
  bool (*IsStreamAware)(const FactoryTable*) = nullptr;
  const void* unused[20] = {};
};

enum Characteristic : int32_t { kRequired = 0, kOptional = 1 };

// What a version after kCustomOpApiVersion added is not read.
struct CustomOpTable {
  uint32_t version = kCustomOpApiVersion;
  const void* unused_create = nullptr;
  const char* (*GetName)(const CustomOpTable*) = nullptr;
  const char* (*GetExecutionProviderType)(const CustomOpTable*) = nullptr;
  int32_t (*GetInputType)(const CustomOpTable*, size_t index) = nullptr;
  size_t (*GetInputTypeCount)(const CustomOpTable*) = nullptr;
  int32_t (*GetOutputType)(const CustomOpTable*, size_t index) = nullptr;
  size_t (*GetOutputTypeCount)(const CustomOpTable*) = nullptr;
  const void* unused_compute = nullptr;
  void (*KernelDestroy)(void* kernel) = nullptr;
  Characteristic (*GetInputCharacteristic)(const CustomOpTable*, size_t index) = nullptr;
  Characteristic (*GetOutputCharacteristic)(const CustomOpTable*, size_t index) = nullptr;
  int32_t (*GetInputMemoryType)(const CustomOpTable*, size_t index) = nullptr;
  const void* unused_variadic[4] = {};
  Status* (*CreateKernel)(const CustomOpTable*, const void* api, const KernelInfo*,
                          void** kernel) = nullptr;
  Status* (*KernelCompute)(void* kernel, KernelContext*) = nullptr;
  const void* unused_shapes = nullptr;
  int32_t (*GetStartVersion)(const CustomOpTable*) = nullptr;
  int32_t (*GetEndVersion)(const CustomOpTable*) = nullptr;
  const void* unused[4] = {};
};

}  // namespace onnx_iron::ort
