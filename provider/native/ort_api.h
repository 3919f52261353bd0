// The part of onnxruntime's C API that the provider uses, declared here by slot: every table of
// that API is a row of function pointers that only grows, so a slot's number and signature never
// change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

// A function that this file declares, for a look at whether the loaded onnxruntime has it.
struct Declared {
  const void* const* const* table;
  size_t slot;
  const char* name;
};

inline std::vector<Declared>& declared_functions() {
  static std::vector<Declared> all;
  return all;
}

template <const void* const** table, size_t slot, typename Signature>
struct Call;

template <const void* const** table, size_t slot, typename Result, typename... Arguments>
struct Call<table, slot, Result(Arguments...)> {
  explicit Call(const char* name) { declared_functions().push_back({table, slot, name}); }
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
enum Severity : int32_t { kVerbose = 0 };
enum OnnxType : int32_t { kTensor = 1 };
enum DeviceType : int32_t { kCpu = 0, kGpu = 1, kNpu = 2 };
enum AttributeKind : int32_t {
  kInt = 1,
  kInts = 2,
  kFloat = 3,
  kFloats = 4,
  kString = 5,
  kStrings = 6,
  kTensorAttribute = 8
};

inline const ApiCall<0, Status*(int32_t code, const char* message)> CreateStatus{"CreateStatus"};
inline const ApiCall<2, const char*(const Status*)> GetErrorMessage{"GetErrorMessage"};
inline const ApiCall<26, Status*(const char* domain, CustomOpDomain**)> CreateCustomOpDomain{
    "CreateCustomOpDomain"};
inline const ApiCall<27, Status*(CustomOpDomain*, const CustomOpTable*)> CustomOpDomain_Add{
    "CustomOpDomain_Add"};
inline const ApiCall<28, Status*(SessionOptions*, CustomOpDomain*)> AddCustomOpDomain{
    "AddCustomOpDomain"};
inline const ApiCall<51, Status*(Value*, void** data)> GetTensorMutableData{"GetTensorMutableData"};
inline const ApiCall<55, Status*(const TypeInfo*, const TensorInfo**)> CastTypeInfoToTensorInfo{
    "CastTypeInfoToTensorInfo"};
inline const ApiCall<56, Status*(const TypeInfo*, int32_t* onnx_type)> GetOnnxTypeFromTypeInfo{
    "GetOnnxTypeFromTypeInfo"};
inline const ApiCall<60, Status*(const TensorInfo*, int32_t* dtype)> GetTensorElementType{
    "GetTensorElementType"};
inline const ApiCall<61, Status*(const TensorInfo*, size_t* rank)> GetDimensionsCount{
    "GetDimensionsCount"};
inline const ApiCall<62, Status*(const TensorInfo*, int64_t* dims, size_t rank)> GetDimensions{
    "GetDimensions"};
inline const ApiCall<63, Status*(const TensorInfo*, const char** names, size_t rank)>
    GetSymbolicDimensions{"GetSymbolicDimensions"};
inline const ApiCall<65, Status*(const Value*, TensorInfo**)> GetTensorTypeAndShape{
    "GetTensorTypeAndShape"};
inline const ApiCall<85, Status*(const KernelInfo*, const char* name, float*)>
    KernelInfoGetAttribute_float{"KernelInfoGetAttribute_float"};
inline const ApiCall<86, Status*(const KernelInfo*, const char* name, int64_t*)>
    KernelInfoGetAttribute_int64{"KernelInfoGetAttribute_int64"};
inline const ApiCall<87, Status*(const KernelInfo*, const char* name, char* text, size_t* bytes)>
    KernelInfoGetAttribute_string{"KernelInfoGetAttribute_string"};
inline const ApiCall<88, Status*(const KernelContext*, size_t*)> KernelContext_GetInputCount{
    "KernelContext_GetInputCount"};
inline const ApiCall<90, Status*(const KernelContext*, size_t index, const Value**)>
    KernelContext_GetInput{"KernelContext_GetInput"};
inline const ApiCall<91, Status*(KernelContext*, size_t index, const int64_t* dims, size_t rank,
                                 Value**)>
    KernelContext_GetOutput{"KernelContext_GetOutput"};
inline const ApiCall<93, void(Status*)> ReleaseStatus{"ReleaseStatus"};
inline const ApiCall<96, void(Value*)> ReleaseValue{"ReleaseValue"};
inline const ApiCall<99, void(TensorInfo*)> ReleaseTensorTypeAndShapeInfo{
    "ReleaseTensorTypeAndShapeInfo"};
inline const ApiCall<163,
                     Status*(const KernelInfo*, const char* name, int64_t* values, size_t* count)>
    KernelInfoGetAttributeArray_int64{"KernelInfoGetAttributeArray_int64"};
inline const ApiCall<244, Status*(const KernelInfo*, char* name, size_t* bytes)>
    KernelInfo_GetNodeName{"KernelInfo_GetNodeName"};
inline const ApiCall<247, Status*(const Logger*, int32_t severity, const char* message,
                                  const char* file, int32_t line, const char* function)>
    Logger_LogMessage{"Logger_LogMessage"};
inline const ApiCall<248, Status*(const Logger*, int32_t* severity)> Logger_GetLoggingSeverityLevel{
    "Logger_GetLoggingSeverityLevel"};
inline const ApiCall<272, Status*(const Attribute*, int32_t kind, void* data, size_t bytes,
                                  size_t* needed)>
    ReadOpAttr{"ReadOpAttr"};
inline const ApiCall<274, Status*(const KernelContext*, void (*task)(void*, size_t), size_t tasks,
                                  size_t batches, void* context)>
    KernelContext_ParallelFor{"KernelContext_ParallelFor"};
inline const ApiCall<289, Status*(const ValueInfo*, const char**)> GetValueInfoName{
    "GetValueInfoName"};
inline const ApiCall<290, Status*(const ValueInfo*, const TypeInfo**)> GetValueInfoTypeInfo{
    "GetValueInfoTypeInfo"};
inline const ApiCall<298, void(const KeyValuePairs*, const char* const** keys,
                               const char* const** values, size_t* count)>
    GetKeyValuePairs{"GetKeyValuePairs"};
inline const ApiCall<300, void(KeyValuePairs*)> ReleaseKeyValuePairs{"ReleaseKeyValuePairs"};
inline const ApiCall<307, int32_t(const HardwareDevice*)> HardwareDevice_Type{
    "HardwareDevice_Type"};
inline const ApiCall<308, uint32_t(const HardwareDevice*)> HardwareDevice_VendorId{
    "HardwareDevice_VendorId"};
inline const ApiCall<317, const void* const*()> GetEpApi{"GetEpApi"};
inline const ApiCall<326, Status*(const ValueInfo*, const Value**)> ValueInfo_GetInitializerValue{
    "ValueInfo_GetInitializerValue"};
inline const ApiCall<331, Status*(const ValueInfo*, bool*)> ValueInfo_IsConstantInitializer{
    "ValueInfo_IsConstantInitializer"};
inline const ApiCall<333, Status*(const Graph*, const char**)> Graph_GetName{"Graph_GetName"};
inline const ApiCall<338, Status*(const Graph*, size_t*)> Graph_GetNumInputs{"Graph_GetNumInputs"};
inline const ApiCall<339, Status*(const Graph*, const ValueInfo**, size_t)> Graph_GetInputs{
    "Graph_GetInputs"};
inline const ApiCall<340, Status*(const Graph*, size_t*)> Graph_GetNumOutputs{
    "Graph_GetNumOutputs"};
inline const ApiCall<341, Status*(const Graph*, const ValueInfo**, size_t)> Graph_GetOutputs{
    "Graph_GetOutputs"};
inline const ApiCall<344, Status*(const Graph*, size_t*)> Graph_GetNumNodes{"Graph_GetNumNodes"};
inline const ApiCall<345, Status*(const Graph*, const Node**, size_t)> Graph_GetNodes{
    "Graph_GetNodes"};
inline const ApiCall<346, Status*(const Graph*, const Node**)> Graph_GetParentNode{
    "Graph_GetParentNode"};
inline const ApiCall<349, Status*(const Node*, const char**)> Node_GetName{"Node_GetName"};
inline const ApiCall<350, Status*(const Node*, const char**)> Node_GetOperatorType{
    "Node_GetOperatorType"};
inline const ApiCall<351, Status*(const Node*, const char**)> Node_GetDomain{"Node_GetDomain"};
inline const ApiCall<352, Status*(const Node*, int*)> Node_GetSinceVersion{"Node_GetSinceVersion"};
inline const ApiCall<353, Status*(const Node*, size_t*)> Node_GetNumInputs{"Node_GetNumInputs"};
inline const ApiCall<354, Status*(const Node*, const ValueInfo**, size_t)> Node_GetInputs{
    "Node_GetInputs"};
inline const ApiCall<355, Status*(const Node*, size_t*)> Node_GetNumOutputs{"Node_GetNumOutputs"};
inline const ApiCall<356, Status*(const Node*, const ValueInfo**, size_t)> Node_GetOutputs{
    "Node_GetOutputs"};
inline const ApiCall<357, Status*(const Node*, size_t*)> Node_GetNumImplicitInputs{
    "Node_GetNumImplicitInputs"};
inline const ApiCall<358, Status*(const Node*, const ValueInfo**, size_t)> Node_GetImplicitInputs{
    "Node_GetImplicitInputs"};
inline const ApiCall<359, Status*(const Node*, size_t*)> Node_GetNumAttributes{
    "Node_GetNumAttributes"};
inline const ApiCall<360, Status*(const Node*, const Attribute**, size_t)> Node_GetAttributes{
    "Node_GetAttributes"};
inline const ApiCall<361, Status*(const Node*, const char* name, const Attribute**)>
    Node_GetAttributeByName{"Node_GetAttributeByName"};
inline const ApiCall<362, Status*(const Attribute*, Value**)> OpAttr_GetTensorAttributeAsOrtValue{
    "OpAttr_GetTensorAttributeAsOrtValue"};
inline const ApiCall<363, Status*(const Attribute*, int32_t* kind)> OpAttr_GetType{
    "OpAttr_GetType"};
inline const ApiCall<364, Status*(const Attribute*, const char**)> OpAttr_GetName{"OpAttr_GetName"};
inline const ApiCall<368, Status*(const Node*, const char**)> Node_GetEpName{"Node_GetEpName"};
inline const ApiCall<378, Status*(const Value*, const void** data)> GetTensorData{"GetTensorData"};
inline const ApiCall<379, Status*(const SessionOptions*, KeyValuePairs**)>
    GetSessionOptionsConfigEntries{"GetSessionOptionsConfigEntries"};
inline const ApiCall<390, bool(const TensorInfo*)> TensorTypeAndShape_HasShape{
    "TensorTypeAndShape_HasShape"};
inline const ApiCall<414, Status*(const Value*, int32_t* dtype, const int64_t** dims, size_t* rank)>
    GetTensorElementTypeAndShapeDataReference{"GetTensorElementTypeAndShapeDataReference"};

struct FusionOptions {
  uint32_t version = kApiVersion;
  bool drop_constant_initializers = false;
};

struct FactoryTable;

inline const EpApiCall<0,
                       Status*(FactoryTable*, const HardwareDevice*, const KeyValuePairs* metadata,
                               const KeyValuePairs* options, EpDevice**)>
    CreateEpDevice{"CreateEpDevice"};
inline const EpApiCall<2, Status*(SupportInfo*, const Node* const*, size_t, const FusionOptions*)>
    EpGraphSupportInfo_AddNodesToFuse{"EpGraphSupportInfo_AddNodesToFuse"};

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
