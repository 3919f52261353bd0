// CumSum over the last axis.
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class CumSum : public Kernel {
 public:
  explicit CumSum(const Shape& x) : width_(x.back()), rows_(product(x, 0, x.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        double total = 0;
        for (int64_t i = row * width_; i < (row + 1) * width_; ++i) {
          total += widen_one(x[i]);
          out[i] = narrow_one<T>(static_cast<float>(total));
        }
      }
    });
  }

 private:
  int64_t width_, rows_;
};

std::unique_ptr<Kernel> make_cum_sum(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  if (x.dtype == DType::kFloat32) return std::make_unique<CumSum<float>>(x.shape);
  return std::make_unique<CumSum<bf16>>(x.shape);
}

const Registration kCumSum("CumSum", make_cum_sum);

}  // namespace
}  // namespace onnx_iron
