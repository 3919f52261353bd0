// Functions of two operands, element by element, with numpy's broadcasting.
#include <cmath>
#include <limits>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// body(a, a_one, b, b_one, out, n) on typed pointers, for every run of the output.
template <typename T, typename Body>
void for_all(const Broadcast<2>& plan, int64_t count, const Buffers& buffers, Threads& threads,
             Body&& body) {
  const T* a = static_cast<const T*>(buffers.inputs[0]);
  const T* b = static_cast<const T*>(buffers.inputs[1]);
  T* out = static_cast<T*>(buffers.outputs[0]);
  parallel_ranges(threads, count, kLightGrain, 64, [&](int64_t begin, int64_t end) {
    plan.for_runs(begin, end, [&](const auto& offsets, const auto& moves, int64_t at, int64_t n) {
      body(a + offsets[0], !moves[0], b + offsets[1], !moves[1], out + at, n);
    });
  });
}

class Binary : public Kernel {
 public:
  Binary(const Node& node, BinaryOp op)
      : op_(op),
        dtype_(node.outputs[0].dtype),
        count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const auto loop = loops().of(dtype_).binary;
    const auto body = [&](const auto* a, bool a_one, const auto* b, bool b_one, auto* out,
                          int64_t n) { loop(op_, a, a_one, b, b_one, out, n); };
    if (dtype_ == DType::kFloat32) return for_all<float>(plan_, count_, buffers, threads, body);
    for_all<bf16>(plan_, count_, buffers, threads, body);
  }

 private:
  BinaryOp op_;
  DType dtype_;
  int64_t count_;
  Broadcast<2> plan_;
};

class Pow : public Kernel {
 public:
  explicit Pow(const Node& node)
      : dtype_(node.outputs[0].dtype),
        count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    if (dtype_ == DType::kFloat32) return raise<float>(buffers, threads);
    raise<bf16>(buffers, threads);
  }

 private:
  template <typename T>
  void raise(const Buffers& buffers, Threads& threads) const {
    const auto multiply = loops().of(dtype_).binary;
    for_all<T>(plan_, count_, buffers, threads,
               [&](const T* a, bool a_one, const T* b, bool b_one, T* out, int64_t n) {
                 // Squares, of which norms are made, are one product.
                 if (b_one && widen_one(*b) == 2.0f) {
                   return multiply(BinaryOp::kMul, a, a_one, a, a_one, out, n);
                 }
                 for (int64_t i = 0; i < n; ++i) {
                   const double base = widen_one(a[a_one ? 0 : i]);
                   const double exponent = widen_one(b[b_one ? 0 : i]);
                   out[i] = narrow_one<T>(static_cast<float>(std::pow(base, exponent)));
                 }
               });
  }

  DType dtype_;
  int64_t count_;
  Broadcast<2> plan_;
};

enum class IntegerOp { kAdd, kSub, kMul, kDiv, kMod, kMax, kMin };

// Sums and products wrap around, as numpy's; so does the one quotient out of range.
template <typename T>
T combine(IntegerOp op, T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  switch (op) {
    case IntegerOp::kAdd:
      return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
    case IntegerOp::kSub:
      return static_cast<T>(static_cast<Bits>(a) - static_cast<Bits>(b));
    case IntegerOp::kMul:
      return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
    case IntegerOp::kDiv:
      return b == -1 ? static_cast<T>(-static_cast<Bits>(a)) : static_cast<T>(a / b);
    case IntegerOp::kMod: {
      if (b == -1) return 0;
      const T rest = static_cast<T>(a % b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    }
    case IntegerOp::kMax:
      return std::max(a, b);
    case IntegerOp::kMin:
      return std::min(a, b);
  }
  return 0;
}

template <typename T>
class Integers : public Kernel {
 public:
  Integers(const Node& node, IntegerOp op)
      : name_(node.op),
        op_(op),
        divisors_(element_count(node.inputs[1].shape)),
        count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    if (op_ == IntegerOp::kDiv || op_ == IntegerOp::kMod) {
      const T* divisors = static_cast<const T*>(buffers.inputs[1]);
      for (int64_t i = 0; i < divisors_; ++i) {
        if (divisors[i] != 0) continue;
        throw std::invalid_argument(
            text(name_, ": b[", i, "] is 0, expected divisors other than 0"));
      }
    }
    for_all<T>(plan_, count_, buffers, threads,
               [&](const T* a, bool a_one, const T* b, bool b_one, T* out, int64_t n) {
                 for (int64_t i = 0; i < n; ++i) {
                   out[i] = combine(op_, a[a_one ? 0 : i], b[b_one ? 0 : i]);
                 }
               });
  }

 private:
  std::string name_;
  IntegerOp op_;
  int64_t divisors_;
  int64_t count_;
  Broadcast<2> plan_;
};

std::vector<Shape> broadcast_shapes(const Node& node) {
  check_inputs(node, 2, 2);
  return {broadcast_shape(node, node.inputs[0].shape, node.inputs[1].shape)};
}

void check_binary(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &a = node.inputs[0], &b = node.inputs[1], &out = node.outputs[0];
  check_same_dtype(node, "b", b, "a", a);
  check_same_dtype(node, "out", out, "a", a);
  check_shape(node, "out", out, broadcast_shapes(node)[0], " (a and b broadcast)");
}

std::unique_ptr<Kernel> make_integers(const Node& node, IntegerOp op) {
  if (node.inputs[0].dtype == DType::kInt32) return std::make_unique<Integers<int32_t>>(node, op);
  return std::make_unique<Integers<int64_t>>(node, op);
}

template <BinaryOp op, IntegerOp integer_op>
std::unique_ptr<Kernel> make_binary(const Node& node) {
  check_binary(node);
  check_dtype(node, "a", node.inputs[0],
              {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kInt64});
  if (is_real(node.inputs[0].dtype)) return std::make_unique<Binary>(node, op);
  return make_integers(node, integer_op);
}

std::unique_ptr<Kernel> make_mod(const Node& node) {
  check_binary(node);
  check_dtype(node, "a", node.inputs[0], {DType::kInt32, DType::kInt64});
  const int64_t fmod = node.attributes.integer("fmod", 0);
  require(fmod == 0, node, "fmod is ", fmod, ", expected 0 (the divisor's sign)");
  return make_integers(node, IntegerOp::kMod);
}

std::unique_ptr<Kernel> make_pow(const Node& node) {
  check_binary(node);
  check_real(node, "a", node.inputs[0]);
  return std::make_unique<Pow>(node);
}

const Registration kAdd("Add", make_binary<BinaryOp::kAdd, IntegerOp::kAdd>, broadcast_shapes);
const Registration kSub("Sub", make_binary<BinaryOp::kSub, IntegerOp::kSub>, broadcast_shapes);
const Registration kMul("Mul", make_binary<BinaryOp::kMul, IntegerOp::kMul>, broadcast_shapes);
const Registration kDiv("Div", make_binary<BinaryOp::kDiv, IntegerOp::kDiv>, broadcast_shapes);
const Registration kMax("Max", make_binary<BinaryOp::kMax, IntegerOp::kMax>);
const Registration kMin("Min", make_binary<BinaryOp::kMin, IntegerOp::kMin>);
const Registration kMod("Mod", make_mod);
const Registration kPow("Pow", make_pow);

}  // namespace
}  // namespace onnx_iron
