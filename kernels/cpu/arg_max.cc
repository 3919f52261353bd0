// ArgMax over the last axis: the first place of the largest element.
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class ArgMax : public Kernel {
 public:
  explicit ArgMax(const Shape& x) : width_(x.back()), rows_(product(x, 0, x.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    int64_t* out = static_cast<int64_t*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) out[row] = place(x + row * width_);
    });
  }

 private:
  // A NaN is larger than all numbers.
  int64_t place(const T* x) const {
    int64_t found = 0;
    float most = widen_one(x[0]);
    for (int64_t i = 1; i < width_ && most == most; ++i) {
      const float value = widen_one(x[i]);
      if (value <= most) continue;
      most = value;
      found = i;
    }
    return found;
  }

  int64_t width_, rows_;
};

std::vector<Shape> arg_max_shapes(const Node& node) {
  check_inputs(node, 1, 1);
  Shape shape = node.inputs[0].shape;
  require(!shape.empty() && shape.back() > 0, node, "x has shape ", text_of(shape),
          ", expected (..., D) with D > 0");
  shape.pop_back();
  return {shape};
}

std::unique_ptr<Kernel> make_arg_max(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_dtype(node, "out", out, {DType::kInt64});
  check_shape(node, "out", out, arg_max_shapes(node)[0], " (x without its last dimension)");
  if (x.dtype == DType::kFloat32) return std::make_unique<ArgMax<float>>(x.shape);
  return std::make_unique<ArgMax<bf16>>(x.shape);
}

const Registration kArgMax("ArgMax", make_arg_max, arg_max_shapes);

}  // namespace
}  // namespace onnx_iron
