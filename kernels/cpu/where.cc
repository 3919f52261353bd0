// Where: one of two operands by a condition, with numpy's broadcasting.
#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// T has the elements' size; what they mean does not matter.
template <typename T>
class Where : public Kernel {
 public:
  explicit Where(const Node& node)
      : count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape,
              {node.inputs[0].shape, node.inputs[1].shape, node.inputs[2].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const uint8_t* condition = static_cast<const uint8_t*>(buffers.inputs[0]);
    const T* a = static_cast<const T*>(buffers.inputs[1]);
    const T* b = static_cast<const T*>(buffers.inputs[2]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      plan_.for_runs(begin, end, [&](const auto& from, const auto& moves, int64_t at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const bool chosen = condition[from[0] + (moves[0] ? i : 0)] != 0;
          out[at + i] = chosen ? a[from[1] + (moves[1] ? i : 0)] : b[from[2] + (moves[2] ? i : 0)];
        }
      });
    });
  }

 private:
  int64_t count_;
  Broadcast<3> plan_;
};

std::vector<Shape> where_shapes(const Node& node) {
  check_inputs(node, 3, 3);
  const Shape values = broadcast_shape(node, node.inputs[1].shape, node.inputs[2].shape);
  return {broadcast_shape(node, node.inputs[0].shape, values)};
}

std::unique_ptr<Kernel> make_where(const Node& node) {
  check_counts(node, 3, 3);
  const Operand &condition = node.inputs[0], &a = node.inputs[1], &b = node.inputs[2];
  check_dtype(node, "condition", condition, {DType::kBool});
  check_same_dtype(node, "b", b, "a", a);
  check_same_dtype(node, "out", node.outputs[0], "a", a);
  check_shape(node, "out", node.outputs[0], where_shapes(node)[0],
              " (condition, a and b broadcast)");
  switch (size_of(a.dtype)) {
    case 1:
      return std::make_unique<Where<uint8_t>>(node);
    case 2:
      return std::make_unique<Where<uint16_t>>(node);
    case 4:
      return std::make_unique<Where<uint32_t>>(node);
    default:
      return std::make_unique<Where<uint64_t>>(node);
  }
}

const Registration kWhere("Where", make_where, where_shapes);

}  // namespace
}  // namespace onnx_iron
