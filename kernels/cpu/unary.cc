// Functions of one operand, element by element.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tables.h"

namespace onnx_iron {
namespace {

class Unary : public Kernel {
 public:
  Unary(UnaryOp op, DType dtype, int64_t count)
      : op_(op), loops_(loops().of(dtype)), size_(size_of(dtype)), count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    // Transcendental functions are worth a task earlier.
    const int64_t grain = has_table(op_) ? kLightGrain / 4 : kLightGrain;
    parallel_ranges(threads, count_, grain, 64, [&](int64_t begin, int64_t end) {
      loops_.unary(op_, x + begin * size_, out + begin * size_, end - begin);
    });
  }

 private:
  UnaryOp op_;
  const TypedLoops& loops_;
  int64_t size_;
  int64_t count_;
};

class Table : public Kernel {
 public:
  Table(UnaryOp op, int64_t count) : table_(table_of(op)), count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const bf16* x = static_cast<const bf16*>(buffers.inputs[0]);
    bf16* out = static_cast<bf16*>(buffers.outputs[0]);
    const bf16* table = table_;
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = table[x[i].bits];
    });
  }

 private:
  const bf16* table_;
  int64_t count_;
};

template <UnaryOp op>
std::unique_ptr<Kernel> make_unary(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  const int64_t count = element_count(x.shape);
  if (x.dtype == DType::kBFloat16 && has_table(op)) return std::make_unique<Table>(op, count);
  return std::make_unique<Unary>(op, x.dtype, count);
}

std::unique_ptr<Kernel> make_gelu(const Node& node) {
  const bool tanh = choice_of(node, "approximate", "none", {"none", "tanh"}) == "tanh";
  return tanh ? make_unary<UnaryOp::kGELUTanh>(node) : make_unary<UnaryOp::kGELU>(node);
}

const Registration kSiLU("SiLU", make_unary<UnaryOp::kSiLU>);
const Registration kGELU("GELU", make_gelu);
const Registration kSigmoid("Sigmoid", make_unary<UnaryOp::kSigmoid>);
const Registration kTanh("Tanh", make_unary<UnaryOp::kTanh>);
const Registration kRelu("Relu", make_unary<UnaryOp::kRelu>);
const Registration kSqrt("Sqrt", make_unary<UnaryOp::kSqrt>);
const Registration kExp("Exp", make_unary<UnaryOp::kExp>);
const Registration kErf("Erf", make_unary<UnaryOp::kErf>);
const Registration kNeg("Neg", make_unary<UnaryOp::kNeg>);
const Registration kReciprocal("Reciprocal", make_unary<UnaryOp::kReciprocal>);
const Registration kAbs("Abs", make_unary<UnaryOp::kAbs>);

}  // namespace
}  // namespace onnx_iron
