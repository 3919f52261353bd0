// The functions of one operand, each with its op, as functions/ gives them.
#include <set>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tables.h"

namespace onnx_iron {
namespace {

class Unary : public Kernel {
 public:
  Unary(const UnaryFunction& function, DType dtype, int64_t count)
      : loop_(dtype == DType::kBFloat16 ? function.bfloat16 : function.float32),
        // Transcendental functions are worth a task earlier.
        grain_(function.exact != nullptr ? kLightGrain / 4 : kLightGrain),
        size_(size_of(dtype)),
        count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, grain_, 64, [&](int64_t begin, int64_t end) {
      loop_(x + begin * size_, out + begin * size_, end - begin);
    });
  }

 private:
  UnaryLoop loop_;
  int64_t grain_, size_, count_;
};

class Table : public Kernel {
 public:
  Table(const UnaryFunction& function, int64_t count) : table_(table_of(function)), count_(count) {}

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

// The function that a node means: its op's only one, or the one that an attribute chooses; the
// first where the node has no such attribute.
const UnaryFunction& function_of(const Node& node) {
  std::vector<const UnaryFunction*> found;
  std::vector<std::string> choices;
  for (const UnaryFunction* function : unary_functions(loops())) {
    if (node.op != function->name) continue;
    found.push_back(function);
    if (function->choice != nullptr) choices.push_back(function->choice);
  }
  if (choices.empty()) return *found[0];
  const std::string chosen = choice_of(node, found[0]->attribute, choices[0], choices);
  return *found[std::find(choices.begin(), choices.end(), chosen) - choices.begin()];
}

std::unique_ptr<Kernel> make_unary(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  const UnaryFunction& function = function_of(node);
  const int64_t count = element_count(x.shape);
  if (x.dtype == DType::kBFloat16 && function.exact != nullptr) {
    return std::make_unique<Table>(function, count);
  }
  return std::make_unique<Unary>(function, x.dtype, count);
}

const bool kRegistered = [] {
  std::set<std::string> ops;
  for (const UnaryFunction* function : unary_functions(portable_loops())) {
    // Further functions of an op come with the choice that means them.
    const bool first = ops.insert(function->name).second;
    if (first || function->choice == nullptr) Registration(function->name, make_unary);
  }
  return true;
}();

}  // namespace
}  // namespace onnx_iron
