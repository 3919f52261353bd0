// The functions of two operands, each with its op, as functions/ gives them.
#include "kernels/cpu/binary.h"

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/loops.h"

namespace onnx_iron {
namespace {

BinaryLoop loop_of(const BinaryFunction& function, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return function.float32;
    case DType::kBFloat16:
      return function.bfloat16;
    case DType::kInt32:
      return function.int32;
    case DType::kInt64:
      return function.int64;
    case DType::kBool:
    case DType::kUInt8:
      break;
  }
  return nullptr;
}

// T is the operands' type.
template <typename T>
class Binary : public Kernel {
 public:
  Binary(const Node& node, const BinaryFunction& function)
      : name_(node.op),
        loop_(loop_of(function, node.inputs[0].dtype)),
        divisors_(function.divides && std::is_integral_v<T> ? element_count(node.inputs[1].shape)
                                                            : 0),
        count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    if constexpr (std::is_integral_v<T>) {
      const T* divisors = static_cast<const T*>(buffers.inputs[1]);
      for (int64_t i = 0; i < divisors_; ++i) {
        if (divisors[i] != 0) continue;
        throw std::invalid_argument(
            text(name_, ": b[", i, "] is 0, expected divisors other than 0"));
      }
    }
    for_all<T>(plan_, count_, buffers, threads, loop_);
  }

 private:
  std::string name_;
  BinaryLoop loop_;
  int64_t divisors_;  // elements of b that must not be 0
  int64_t count_;
  Broadcast<2> plan_;
};

const BinaryFunction& function_of(const Node& node) {
  for (const BinaryFunction* function : binary_functions(loops())) {
    if (node.op == function->name) return *function;
  }
  fail(node, "these loops have no such function");
}

std::unique_ptr<Kernel> make_binary(const Node& node) {
  check_binary(node);
  const BinaryFunction& function = function_of(node);
  std::vector<DType> taken;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kInt64}) {
    if (loop_of(function, dtype) != nullptr) taken.push_back(dtype);
  }
  check_dtype(node, "a", node.inputs[0], taken);
  if (function.zero_attribute != nullptr) {
    const int64_t value = node.attributes.integer(function.zero_attribute, 0);
    require(value == 0, node, function.zero_attribute, " is ", value, ", expected 0");
  }
  switch (node.inputs[0].dtype) {
    case DType::kFloat32:
      return std::make_unique<Binary<float>>(node, function);
    case DType::kBFloat16:
      return std::make_unique<Binary<bf16>>(node, function);
    case DType::kInt32:
      return std::make_unique<Binary<int32_t>>(node, function);
    default:
      return std::make_unique<Binary<int64_t>>(node, function);
  }
}

const bool kRegistered = [] {
  for (const BinaryFunction* function : binary_functions(portable_loops())) {
    Registration(function->name, make_binary, broadcast_shapes);
  }
  return true;
}();

}  // namespace
}  // namespace onnx_iron
