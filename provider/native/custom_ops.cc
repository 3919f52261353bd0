#include "provider/native/custom_ops.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/cpu/kernel.h"
#include "provider/native/frame.h"
#include "provider/native/pool_threads.h"
#include "provider/native/signatures.h"
#include "provider/native/status.h"

namespace onnx_iron {
namespace {

constexpr char kDomain[] = "onnx_iron";

// Whether onnxruntime has an answer; why not does not matter.
bool succeeds(ort::Status* status) {
  if (status != nullptr) ort::ReleaseStatus(status);
  return status == nullptr;
}

// A node's attribute, whatever its kind.
std::optional<Attributes::Value> attribute_of(const ort::KernelInfo* info, const char* name) {
  int64_t integer = 0;
  if (succeeds(ort::KernelInfoGetAttribute_int64(info, name, &integer))) return integer;
  float real = 0;
  if (succeeds(ort::KernelInfoGetAttribute_float(info, name, &real))) return real;
  size_t bytes = 0;
  if (succeeds(ort::KernelInfoGetAttribute_string(info, name, nullptr, &bytes))) {
    std::string text(bytes, '\0');
    check(ort::KernelInfoGetAttribute_string(info, name, text.data(), &bytes));
    text.resize(bytes - 1);
    return text;
  }
  size_t count = 0;
  if (succeeds(ort::KernelInfoGetAttributeArray_int64(info, name, nullptr, &count))) {
    std::vector<int64_t> integers(count);
    check(ort::KernelInfoGetAttributeArray_int64(info, name, integers.data(), &count));
    return integers;
  }
  return {};
}

// The attributes of a node, each of the kind declared.
Attributes attributes_of(const ort::KernelInfo* info, const Signature& signature) {
  Attributes attributes;
  for (const AttributeSignature& declared : signature.attributes) {
    std::optional<Attributes::Value> value = attribute_of(info, declared.name);
    if (!value) value = declared.otherwise;
    if (!value) continue;
    attributes.set(declared.name, *value);
    if (declared.kind == ort::kInt) attributes.integer(declared.name);
    if (declared.kind == ort::kFloat) attributes.real(declared.name);
    if (declared.kind == ort::kString) attributes.text(declared.name);
  }
  return attributes;
}

std::string node_name(const ort::KernelInfo* info) {
  size_t bytes = 0;
  check(ort::KernelInfo_GetNodeName(info, nullptr, &bytes));
  std::string name(bytes, '\0');
  check(ort::KernelInfo_GetNodeName(info, name.data(), &bytes));
  name.resize(bytes - 1);
  return name;
}

Shape shape_of(const ort::Value* value) {
  ort::TensorInfo* made = nullptr;
  check(ort::GetTensorTypeAndShape(value, &made));
  std::unique_ptr<ort::TensorInfo, void (*)(ort::TensorInfo*)> info(
      made, [](ort::TensorInfo* held) { ort::ReleaseTensorTypeAndShapeInfo(held); });
  size_t rank = 0;
  check(ort::GetDimensionsCount(info.get(), &rank));
  Shape shape(rank);
  check(ort::GetDimensions(info.get(), shape.data(), rank));
  return shape;
}

void* data_of(const ort::Value* value) {
  void* data = nullptr;
  check(ort::GetTensorMutableData(const_cast<ort::Value*>(value), &data));
  return data;
}

// An operator for one choice of its inputs' dtypes.
struct CustomOp : ort::CustomOpTable {
  CustomOp(const Signature& signature, DType t, std::vector<DType> inputs);

  DType output_dtype(size_t index) const { return signature.outputs[index].dtype.value_or(t); }

  const Signature& signature;
  DType t;  // of the inputs of kinds T, any and number
  std::vector<DType> inputs;
};

// A node: its kernels, one for each set of input shapes it has met, and its runs.
class CustomKernel {
 public:
  CustomKernel(const CustomOp& op, const ort::KernelInfo* info) : op_(op), name_(node_name(info)) {
    named([&] { attributes_ = attributes_of(info, op.signature); });
  }

  void run(ort::KernelContext* context) {
    named([&] { compute(context); });
  }

 private:
  struct Compiled {
    std::vector<Operand> inputs, outputs;
    std::unique_ptr<Kernel> kernel;
  };

  static constexpr size_t kMaxCompiled = 32;

  // body(), whose errors then say which node they are of.
  template <typename Body>
  void named(Body&& body) const {
    try {
      body();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(with_node_name(error.what(), op_.signature.op, name_));
    } catch (const std::exception& error) {
      throw std::runtime_error(with_node_name(error.what(), op_.signature.op, name_));
    }
  }

  void compute(ort::KernelContext* context) {
    size_t count = 0;
    check(ort::KernelContext_GetInputCount(context, &count));
    std::vector<Operand> operands(count);
    std::vector<const void*> inputs(count);
    for (size_t i = 0; i < count; ++i) {
      const ort::Value* value = nullptr;
      check(ort::KernelContext_GetInput(context, i, &value));
      operands[i].dtype = op_.inputs[i];
      operands[i].present = value != nullptr;
      if (value == nullptr) continue;
      operands[i].shape = shape_of(value);
      inputs[i] = data_of(value);
    }
    const std::shared_ptr<Compiled> compiled = compiled_for(std::move(operands));
    std::vector<void*> outputs;
    for (const Operand& output : compiled->outputs) {
      ort::Value* value = nullptr;
      check(ort::KernelContext_GetOutput(context, outputs.size(), output.shape.data(),
                                         output.shape.size(), &value));
      outputs.push_back(data_of(value));
    }
    FramePool::Lease frame(frames());
    frame->reserve(0, compiled->kernel->scratch_bytes());
    PoolThreads threads(context);
    compiled->kernel->run({inputs.data(), outputs.data(), frame->scratch()}, threads);
  }

  // The scratch of every node of every session: onnxruntime tells nodes nothing of their session.
  static FramePool& frames() {
    static FramePool pool;
    return pool;
  }

  std::shared_ptr<Compiled> compiled_for(std::vector<Operand> inputs) {
    {
      std::lock_guard lock(mutex_);
      for (const auto& compiled : compiled_) {
        if (compiled->inputs == inputs) return compiled;
      }
    }
    Node node{op_.signature.op, inputs, {}, attributes_};
    node.outputs = infer_outputs(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) node.outputs[i].dtype = op_.output_dtype(i);
    auto compiled = std::make_shared<Compiled>();
    compiled->kernel = make_kernel(node);
    compiled->inputs = std::move(inputs);
    compiled->outputs = std::move(node.outputs);
    std::lock_guard lock(mutex_);
    if (compiled_.size() == kMaxCompiled) compiled_.erase(compiled_.begin());
    compiled_.push_back(compiled);
    return compiled;
  }

  const CustomOp& op_;
  std::string name_;
  Attributes attributes_;
  std::mutex mutex_;  // of compiled_, held for look-ups only
  std::vector<std::shared_ptr<Compiled>> compiled_;
};

CustomOp::CustomOp(const Signature& declared, DType common, std::vector<DType> dtypes)
    : signature(declared), t(common), inputs(std::move(dtypes)) {
  static constexpr auto of = [](const ort::CustomOpTable* self) -> const CustomOp& {
    return *static_cast<const CustomOp*>(self);
  };
  GetName = [](const ort::CustomOpTable* self) { return of(self).signature.op.c_str(); };
  // None: onnxruntime's own CPU provider.
  GetExecutionProviderType = [](const ort::CustomOpTable*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const ort::CustomOpTable* self) { return of(self).inputs.size(); };
  GetInputType = [](const ort::CustomOpTable* self, size_t index) {
    return static_cast<int32_t>(of(self).inputs[index]);
  };
  GetInputCharacteristic = [](const ort::CustomOpTable* self, size_t index) {
    return of(self).signature.inputs[index].optional ? ort::kOptional : ort::kRequired;
  };
  GetInputMemoryType = [](const ort::CustomOpTable*, size_t) { return 0; };
  GetOutputTypeCount = [](const ort::CustomOpTable* self) {
    return of(self).signature.outputs.size();
  };
  GetOutputType = [](const ort::CustomOpTable* self, size_t index) {
    return static_cast<int32_t>(of(self).output_dtype(index));
  };
  GetOutputCharacteristic = [](const ort::CustomOpTable*, size_t) { return ort::kRequired; };
  GetStartVersion = [](const ort::CustomOpTable*) { return 1; };
  GetEndVersion = [](const ort::CustomOpTable*) { return std::numeric_limits<int32_t>::max(); };
  CreateKernel = [](const ort::CustomOpTable* self, const void*, const ort::KernelInfo* info,
                    void** kernel) {
    return guarded([&] { *kernel = new CustomKernel(of(self), info); });
  };
  KernelCompute = [](void* kernel, ort::KernelContext* context) {
    return guarded([&] { static_cast<CustomKernel*>(kernel)->run(context); });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<CustomKernel*>(kernel); };
}

std::vector<DType> dtypes_of(InputKind kind, DType t) {
  switch (kind) {
    case InputKind::kT:
    case InputKind::kAny:
    case InputKind::kNumber:
      return {t};
    case InputKind::kBool:
      return {DType::kBool};
    case InputKind::kTOrFloat32:
      if (t == DType::kFloat32) return {t};
      return {t, DType::kFloat32};
    case InputKind::kFloat32:
      return {DType::kFloat32};
    case InputKind::kIndex:
      return {DType::kInt32, DType::kInt64};
    case InputKind::kScalar:
      return {DType::kInt32};
  }
  return {};
}

// An operator with its inputs' dtypes in every way that its signature allows.
std::vector<std::unique_ptr<CustomOp>> overloads_of(const Signature& signature) {
  std::vector<std::unique_ptr<CustomOp>> all;
  const auto has = [&](InputKind kind) {
    return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                       [&](const InputSignature& input) { return input.kind == kind; });
  };
  std::vector<DType> computed = {DType::kFloat32, DType::kBFloat16};
  if (has(InputKind::kAny) || has(InputKind::kNumber)) {
    computed.insert(computed.end(), {DType::kInt32, DType::kInt64});
  }
  if (has(InputKind::kAny)) computed.push_back(DType::kBool);
  for (DType t : computed) {
    std::vector<std::vector<DType>> made = {{}};
    for (const InputSignature& input : signature.inputs) {
      std::vector<std::vector<DType>> longer;
      for (const std::vector<DType>& before : made) {
        for (DType dtype : dtypes_of(input.kind, t)) {
          longer.push_back(before);
          longer.back().push_back(dtype);
        }
      }
      made = std::move(longer);
    }
    for (std::vector<DType>& inputs : made) {
      all.push_back(std::make_unique<CustomOp>(signature, t, std::move(inputs)));
    }
  }
  return all;
}

const std::vector<std::unique_ptr<CustomOp>>& custom_ops() {
  static const std::vector<std::unique_ptr<CustomOp>> all = [] {
    std::vector<std::unique_ptr<CustomOp>> made;
    for (const Signature& signature : signatures()) {
      for (auto& op : overloads_of(signature)) made.push_back(std::move(op));
    }
    return made;
  }();
  return all;
}

// Made once for all sessions, which keep pointers to it and to its operators.
ort::CustomOpDomain* domain() {
  static ort::CustomOpDomain* const made = [] {
    ort::CustomOpDomain* domain = nullptr;
    check(ort::CreateCustomOpDomain(kDomain, &domain));
    for (const auto& op : custom_ops()) check(ort::CustomOpDomain_Add(domain, op.get()));
    return domain;
  }();
  return made;
}

}  // namespace

void add_custom_ops(ort::SessionOptions* options) {
  check(ort::AddCustomOpDomain(options, domain()));
}

}  // namespace onnx_iron
