// And, Or and Xor with numpy's broadcasting, and Not: bools, whose bytes may hold any value.
#include "kernels/cpu/binary.h"

namespace onnx_iron {
namespace {

struct And {
  bool operator()(bool a, bool b) const { return a && b; }
};
struct Or {
  bool operator()(bool a, bool b) const { return a || b; }
};
struct Xor {
  bool operator()(bool a, bool b) const { return a != b; }
};

template <typename Relation>
class Logic : public Kernel {
 public:
  explicit Logic(const Node& node)
      : count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    for_all<uint8_t>(
        plan_, count_, buffers, threads,
        [](const uint8_t* a, bool a_one, const uint8_t* b, bool b_one, uint8_t* out, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            out[i] = Relation()(a[a_one ? 0 : i] != 0, b[b_one ? 0 : i] != 0);
          }
        });
  }

 private:
  int64_t count_;
  Broadcast<2> plan_;
};

class Not : public Kernel {
 public:
  explicit Not(int64_t count) : count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const uint8_t* x = static_cast<const uint8_t*>(buffers.inputs[0]);
    uint8_t* out = static_cast<uint8_t*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = x[i] == 0;
    });
  }

 private:
  int64_t count_;
};

template <typename Relation>
std::unique_ptr<Kernel> make_logic(const Node& node) {
  check_binary(node);
  check_dtype(node, "a", node.inputs[0], {DType::kBool});
  return std::make_unique<Logic<Relation>>(node);
}

std::unique_ptr<Kernel> make_not(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_dtype(node, "x", x, {DType::kBool});
  check_dtype(node, "out", out, {DType::kBool});
  check_shape(node, "out", out, x.shape, " (as x)");
  return std::make_unique<Not>(element_count(x.shape));
}

const Registration kAnd("And", make_logic<And>, broadcast_shapes);
const Registration kOr("Or", make_logic<Or>, broadcast_shapes);
const Registration kXor("Xor", make_logic<Xor>, broadcast_shapes);
const Registration kNot("Not", make_not);

}  // namespace
}  // namespace onnx_iron
