// ReduceSum, ReduceMean and ReduceMax over the last axis.
#include "kernels/cpu/bf16.h"
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

template <typename T>
class ReduceMax : public Kernel {
 public:
  explicit ReduceMax(const Shape& x) : width_(x.back()), rows_(product(x, 0, x.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x + row * width_;
        float most = widen_one(from[0]);
        for (int64_t i = 1; i < width_; ++i) {
          const float value = widen_one(from[i]);
          // A NaN stays, and comes through.
          most = value > most || value != value ? value : most;
        }
        out[row] = narrow_one<T>(most);
      }
    });
  }

 private:
  int64_t width_, rows_;
};

std::vector<Shape> reduce_shapes(const Node& node) {
  check_inputs(node, 1, 1);
  Shape shape = node.inputs[0].shape;
  require(!shape.empty(), node, "x has shape (), expected (..., D)");
  shape.pop_back();
  if (flag_of(node, "keepdims", true)) shape.push_back(1);
  return {shape};
}

void check_reduce(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, reduce_shapes(node)[0], " (x without its last dimension)");
}

template <bool mean>
std::unique_ptr<Kernel> make_reduce(const Node& node) {
  check_reduce(node);
  return std::make_unique<Reduce>(node.inputs[0], mean);
}

std::unique_ptr<Kernel> make_reduce_max(const Node& node) {
  check_reduce(node);
  const Operand& x = node.inputs[0];
  require(x.shape.back() > 0, node, "x has shape ", text_of(x.shape), ", expected D > 0");
  if (x.dtype == DType::kFloat32) return std::make_unique<ReduceMax<float>>(x.shape);
  return std::make_unique<ReduceMax<bf16>>(x.shape);
}

const Registration kReduceMean("ReduceMean", make_reduce<true>, reduce_shapes);
const Registration kReduceSum("ReduceSum", make_reduce<false>, reduce_shapes);
const Registration kReduceMax("ReduceMax", make_reduce_max, reduce_shapes);

}  // namespace
}  // namespace onnx_iron
