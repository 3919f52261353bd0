// Equal, Less, LessOrEqual, Greater and GreaterOrEqual, with numpy's broadcasting: bools.
#include <functional>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/binary.h"

namespace onnx_iron {
namespace {

template <typename T>
T comparable(T x) {
  return x;
}
float comparable(bf16 x) { return widen_one(x); }

// T is the operands' type.
template <typename T, typename Relation>
class Compare : public Kernel {
 public:
  explicit Compare(const Node& node)
      : count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* a = static_cast<const T*>(buffers.inputs[0]);
    const T* b = static_cast<const T*>(buffers.inputs[1]);
    bool* out = static_cast<bool*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      plan_.for_runs(begin, end, [&](const auto& from, const auto& moves, int64_t at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          out[at + i] = Relation()(comparable(a[from[0] + (moves[0] ? i : 0)]),
                                   comparable(b[from[1] + (moves[1] ? i : 0)]));
        }
      });
    });
  }

 private:
  int64_t count_;
  Broadcast<2> plan_;
};

template <typename Relation, bool of_bools>
std::unique_ptr<Kernel> make_compare(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &a = node.inputs[0], &b = node.inputs[1], &out = node.outputs[0];
  std::vector<DType> taken = {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kInt64};
  if (of_bools) taken.push_back(DType::kBool);
  check_dtype(node, "a", a, taken);
  check_same_dtype(node, "b", b, "a", a);
  check_dtype(node, "out", out, {DType::kBool});
  check_shape(node, "out", out, broadcast_shape(node, a.shape, b.shape), " (a and b broadcast)");
  switch (a.dtype) {
    case DType::kFloat32:
      return std::make_unique<Compare<float, Relation>>(node);
    case DType::kBFloat16:
      return std::make_unique<Compare<bf16, Relation>>(node);
    case DType::kInt32:
      return std::make_unique<Compare<int32_t, Relation>>(node);
    case DType::kInt64:
      return std::make_unique<Compare<int64_t, Relation>>(node);
    default:
      return std::make_unique<Compare<uint8_t, Relation>>(node);
  }
}

const Registration kEqual("Equal", make_compare<std::equal_to<>, true>, broadcast_shapes);
const Registration kLess("Less", make_compare<std::less<>, false>, broadcast_shapes);
const Registration kLessOrEqual("LessOrEqual", make_compare<std::less_equal<>, false>,
                                broadcast_shapes);
const Registration kGreater("Greater", make_compare<std::greater<>, false>, broadcast_shapes);
const Registration kGreaterOrEqual("GreaterOrEqual", make_compare<std::greater_equal<>, false>,
                                   broadcast_shapes);

}  // namespace
}  // namespace onnx_iron
