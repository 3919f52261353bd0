// IsNaN: bools.
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class IsNaN : public Kernel {
 public:
  explicit IsNaN(int64_t count) : count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    bool* out = static_cast<bool*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float value = widen_one(x[i]);
        out[i] = value != value;
      }
    });
  }

 private:
  int64_t count_;
};

std::unique_ptr<Kernel> make_is_nan(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_dtype(node, "out", out, {DType::kBool});
  check_shape(node, "out", out, x.shape, " (as x)");
  const int64_t count = element_count(x.shape);
  if (x.dtype == DType::kFloat32) return std::make_unique<IsNaN<float>>(count);
  return std::make_unique<IsNaN<bf16>>(count);
}

const Registration kIsNaN("IsNaN", make_is_nan);

}  // namespace
}  // namespace onnx_iron
