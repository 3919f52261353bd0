// LogSoftmax over the last axis, its sum in double.
#include <cmath>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class LogSoftmax : public Kernel {
 public:
  explicit LogSoftmax(const Shape& x)
      : width_(x.back()), rows_(width_ == 0 ? 0 : product(x, 0, x.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x + row * width_;
        float most = widen_one(from[0]);
        for (int64_t i = 1; i < width_; ++i) most = std::max(most, widen_one(from[i]));
        double total = 0;
        for (int64_t i = 0; i < width_; ++i) total += std::exp(widen_one(from[i]) - most);
        const double shift = most + std::log(total);
        for (int64_t i = 0; i < width_; ++i) {
          out[row * width_ + i] = narrow_one<T>(static_cast<float>(widen_one(from[i]) - shift));
        }
      }
    });
  }

 private:
  int64_t width_, rows_;
};

std::unique_ptr<Kernel> make_log_softmax(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  if (x.dtype == DType::kFloat32) return std::make_unique<LogSoftmax<float>>(x.shape);
  return std::make_unique<LogSoftmax<bf16>>(x.shape);
}

const Registration kLogSoftmax("LogSoftmax", make_log_softmax);

}  // namespace
}  // namespace onnx_iron
