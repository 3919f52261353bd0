// RMSNorm and LayerNorm, under their own and the standard names, and sums over the last axis.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class Norm : public Kernel {
 public:
  Norm(const Node& node, bool centred, float epsilon)
      : loops_(loops().of(node.inputs[0].dtype)),
        size_(size_of(node.inputs[0].dtype)),
        width_(node.inputs[0].shape.back()),
        rows_(width_ == 0 ? 0 : product(node.inputs[0].shape, 0, node.inputs[0].shape.size() - 1)),
        weighted_(node.has_input(1)),
        biased_(node.has_input(2)),
        centred_(centred),
        epsilon_(epsilon) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const void* weight = input_or_null(buffers, weighted_, 1);
    const void* bias = input_or_null(buffers, biased_, 2);
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width_ * size_;
      if (centred_) {
        loops_.layer_norm(x + at, weight, bias, out + at, end - begin, width_, epsilon_);
      } else {
        loops_.rms_norm(x + at, weight, out + at, end - begin, width_, epsilon_);
      }
    });
  }

 private:
  const TypedLoops& loops_;
  int64_t size_, width_, rows_;
  bool weighted_, biased_, centred_;
  float epsilon_;
};

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

// An operand with one value for each entry of x's last axis.
void check_per_entry(const Node& node, const char* name, size_t index) {
  if (!node.has_input(index)) return;
  const Operand &x = node.inputs[0], &operand = node.inputs[index];
  check_same_dtype(node, name, operand, "x", x);
  check_shape(node, name, operand, {x.shape.back()}, " (x's last dimension)");
}

std::unique_ptr<Kernel> make_norm(const Node& node, size_t most, const char* weight, bool centred) {
  check_counts(node, 1, most);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  check_per_entry(node, weight, 1);
  check_per_entry(node, "bias", 2);
  return std::make_unique<Norm>(node, centred, node.attributes.real("epsilon", 1e-5f));
}

// The standard ops name the first axis of those that are normalized; it must be the last one.
void check_last_axis(const Node& node) {
  check_counts(node, 2, 3);
  const size_t rank = node.inputs[0].shape.size();
  const int64_t axis = axis_of(node, node.attributes.integer("axis", -1), rank);
  require(axis + 1 == static_cast<int64_t>(rank), node, "axis is ", axis, ", expected ", rank - 1,
          " (the last of x)");
}

std::unique_ptr<Kernel> make_rms_norm(const Node& node) {
  return make_norm(node, 2, "weight", false);
}

std::unique_ptr<Kernel> make_layer_norm(const Node& node) {
  return make_norm(node, 2, "weight", true);
}

std::unique_ptr<Kernel> make_rms_normalization(const Node& node) {
  check_last_axis(node);
  return make_norm(node, 2, "scale", false);
}

std::unique_ptr<Kernel> make_layer_normalization(const Node& node) {
  check_last_axis(node);
  return make_norm(node, 3, "scale", true);
}

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

const Registration kRMSNorm("RMSNorm", make_rms_norm);
const Registration kLayerNorm("LayerNorm", make_layer_norm);
const Registration kRMSNormalization("RMSNormalization", make_rms_normalization);
const Registration kLayerNormalization("LayerNormalization", make_layer_normalization);
const Registration kReduceMean("ReduceMean", make_reduce<true>);
const Registration kReduceSum("ReduceSum", make_reduce<false>);

}  // namespace
}  // namespace onnx_iron
