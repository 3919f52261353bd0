// Concat.
#include <numeric>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class Concat : public Kernel {
 public:
  Concat(const Node& node, int64_t axis) : outer_(product(node.outputs[0].shape, 0, axis)) {
    for (const Operand& input : node.inputs) {
      bytes_.push_back(product(input.shape, axis, input.shape.size()) * size_of(input.dtype));
    }
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t row = std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, outer_, row, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        char* to = out + o * row;
        for (size_t i = 0; i < bytes_.size(); to += bytes_[i], ++i) {
          copy_some(to, static_cast<const char*>(buffers.inputs[i]) + o * bytes_[i], bytes_[i]);
        }
      }
    });
  }

 private:
  int64_t outer_;
  std::vector<int64_t> bytes_;  // of each input, for each outer index
};

std::unique_ptr<Kernel> make_concat(const Node& node) {
  require(!node.inputs.empty(), node, "it has 0 inputs, expected at least 1");
  check_counts(node, node.inputs.size(), node.inputs.size());
  const Operand &first = node.inputs[0], &out = node.outputs[0];
  const int64_t axis = axis_of(node, node.attributes.integer("axis"), first.shape.size());
  Shape expected = first.shape;
  expected[axis] = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Operand& input = node.inputs[i];
    const std::string name = text("input ", i);
    check_same_dtype(node, name.c_str(), input, "input 0", first);
    Shape like = first.shape;
    if (input.shape.size() == like.size()) like[axis] = input.shape[axis];
    check_shape(node, name.c_str(), input, like, text(" (as input 0 but for axis ", axis, ")"));
    expected[axis] += input.shape[axis];
  }
  check_same_dtype(node, "out", out, "input 0", first);
  check_shape(node, "out", out, expected, text(" (axis is ", axis, ")"));
  return std::make_unique<Concat>(node, axis);
}

const Registration kConcat("Concat", make_concat);

}  // namespace
}  // namespace onnx_iron
