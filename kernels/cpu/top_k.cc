// TopK over the last axis: the largest elements, the largest first, and their places.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class TopK : public Kernel {
 public:
  TopK(const Shape& x, int64_t k) : width_(x.back()), rows_(product(x, 0, x.size() - 1)), k_(k) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* values = static_cast<T*>(buffers.outputs[0]);
    int64_t* places = static_cast<int64_t*>(buffers.outputs[1]);
    parallel_rows(threads, rows_, 8 * width_, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> order(width_);
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x + row * width_;
        std::iota(order.begin(), order.end(), 0);
        // Of equals the first; a NaN ranks with infinity.
        std::partial_sort(order.begin(), order.begin() + k_, order.end(),
                          [&](int64_t i, int64_t j) {
                            const float a = rank(from[i]), b = rank(from[j]);
                            return a > b || (a == b && i < j);
                          });
        for (int64_t i = 0; i < k_; ++i) {
          values[row * k_ + i] = from[order[i]];
          places[row * k_ + i] = order[i];
        }
      }
    });
  }

 private:
  static float rank(T x) {
    const float value = widen_one(x);
    return value != value ? std::numeric_limits<float>::infinity() : value;
  }

  int64_t width_, rows_, k_;
};

std::vector<Shape> top_k_shapes(const Node& node) {
  check_inputs(node, 1, 1);
  Shape shape = node.inputs[0].shape;
  const int64_t k = node.attributes.integer("k");
  require(!shape.empty() && k >= 1 && k <= shape.back(), node, "x has shape ", text_of(shape),
          " and k is ", k, ", expected (..., D) with k in 1..D");
  shape.back() = k;
  return {shape, shape};
}

std::unique_ptr<Kernel> make_top_k(const Node& node) {
  check_counts(node, 1, 1, 2);
  const Operand& x = node.inputs[0];
  check_real(node, "x", x);
  const Shape expected = top_k_shapes(node)[0];
  check_same_dtype(node, "values", node.outputs[0], "x", x);
  check_shape(node, "values", node.outputs[0], expected, " (x with k entries)");
  require(node.outputs[1].present, node, "indices is omitted, expected a tensor");
  check_dtype(node, "indices", node.outputs[1], {DType::kInt64});
  check_shape(node, "indices", node.outputs[1], expected, " (x with k entries)");
  const int64_t k = expected.back();
  if (x.dtype == DType::kFloat32) return std::make_unique<TopK<float>>(x.shape, k);
  return std::make_unique<TopK<bf16>>(x.shape, k);
}

const Registration kTopK("TopK", make_top_k, top_k_shapes);

}  // namespace
}  // namespace onnx_iron
