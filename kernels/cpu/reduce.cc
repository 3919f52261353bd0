// ReduceSum and ReduceMean over the last axis.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class Reduce : public Kernel {
 public:
  Reduce(const Operand& x, bool mean)
      : loops_(loops().of(x.dtype)),
        size_(size_of(x.dtype)),
        width_(x.shape.back()),
        rows_(product(x.shape, 0, x.shape.size() - 1)),
        mean_(mean) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      loops_.reduce(x + begin * width_ * size_, out + begin * size_, end - begin, width_, mean_);
    });
  }

 private:
  const TypedLoops& loops_;
  int64_t size_, width_, rows_;
  bool mean_;
};

template <bool mean>
std::unique_ptr<Kernel> make_reduce(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  Shape expected = x.shape;
  expected.pop_back();
  if (flag_of(node, "keepdims", true)) expected.push_back(1);
  check_shape(node, "out", out, expected, " (x without its last dimension)");
  return std::make_unique<Reduce>(x, mean);
}

const Registration kReduceMean("ReduceMean", make_reduce<true>);
const Registration kReduceSum("ReduceSum", make_reduce<false>);

}  // namespace
}  // namespace onnx_iron
