// Pow, with numpy's broadcasting.
#include <cmath>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/binary.h"
#include "kernels/cpu/loops.h"

namespace onnx_iron {
namespace {

class Pow : public Kernel {
 public:
  explicit Pow(const Node& node)
      : dtype_(node.outputs[0].dtype),
        count_(element_count(node.outputs[0].shape)),
        plan_(node.outputs[0].shape, {node.inputs[0].shape, node.inputs[1].shape}) {
    for (const BinaryFunction* function : binary_functions(loops())) {
      if (std::string(function->name) != "Mul") continue;
      multiply_ = dtype_ == DType::kFloat32 ? function->float32 : function->bfloat16;
    }
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    if (dtype_ == DType::kFloat32) return raise<float>(buffers, threads);
    raise<bf16>(buffers, threads);
  }

 private:
  template <typename T>
  void raise(const Buffers& buffers, Threads& threads) const {
    for_all<T>(plan_, count_, buffers, threads,
               [&](const T* a, bool a_one, const T* b, bool b_one, T* out, int64_t n) {
                 // Squares, of which norms are made, are one product.
                 if (b_one && widen_one(*b) == 2.0f) {
                   return multiply_(a, a_one, a, a_one, out, n);
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
  BinaryLoop multiply_ = nullptr;
};

std::unique_ptr<Kernel> make_pow(const Node& node) {
  check_binary(node);
  check_real(node, "a", node.inputs[0]);
  return std::make_unique<Pow>(node);
}

const Registration kPow("Pow", make_pow, broadcast_shapes);

}  // namespace
}  // namespace onnx_iron
