// Expand: numpy's broadcasting of one operand, to the shape of the output.
#include "kernels/cpu/strided.h"

namespace onnx_iron {
namespace {

std::unique_ptr<Kernel> make_expand(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_same_dtype(node, "out", out, "x", x);
  require(out.shape.size() >= x.shape.size(), node, "out has shape ", text_of(out.shape),
          ", expected at least as many dimensions as x, ", text_of(x.shape));
  check_shape(node, "out", out, broadcast_shape(node, x.shape, out.shape), " (x broadcast)");
  const Shape strides = strides_of(x.shape);
  const size_t added = out.shape.size() - x.shape.size();
  Shape steps(out.shape.size(), 0);
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (x.shape[i] != 1) steps[added + i] = strides[i];
  }
  return std::make_unique<Strided>(out.shape, steps, 0, x.dtype);
}

const Registration kExpand("Expand", make_expand);

}  // namespace
}  // namespace onnx_iron
