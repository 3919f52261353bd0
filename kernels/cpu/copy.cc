// Copy: the same elements in any shape.
#include "kernels/cpu/slices.h"

namespace onnx_iron {
namespace {

class Copy : public Kernel {
 public:
  explicit Copy(int64_t bytes) : bytes_(bytes) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    copy_bytes(buffers.inputs[0], buffers.outputs[0], bytes_, threads);
  }

 private:
  int64_t bytes_;
};

std::unique_ptr<Kernel> make_copy(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_same_dtype(node, "out", out, "x", x);
  require(element_count(out.shape) == element_count(x.shape), node, "out has shape ",
          text_of(out.shape), ", expected as many elements as x, ", text_of(x.shape));
  return std::make_unique<Copy>(element_count(x.shape) * size_of(x.dtype));
}

const Registration kCopy("Copy", make_copy);

}  // namespace
}  // namespace onnx_iron
