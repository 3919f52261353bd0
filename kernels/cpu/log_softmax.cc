// LogSoftmax over the last axis.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class LogSoftmax : public Kernel {
 public:
  explicit LogSoftmax(const Operand& x)
      : loops_(loops().of(x.dtype)),
        size_(size_of(x.dtype)),
        width_(x.shape.back()),
        rows_(width_ == 0 ? 0 : product(x.shape, 0, x.shape.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width_ * size_;
      loops_.log_softmax(x + at, out + at, end - begin, width_);
    });
  }

 private:
  const TypedLoops& loops_;
  int64_t size_, width_, rows_;
};

std::unique_ptr<Kernel> make_log_softmax(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  return std::make_unique<LogSoftmax>(x);
}

const Registration kLogSoftmax("LogSoftmax", make_log_softmax);

}  // namespace
}  // namespace onnx_iron
