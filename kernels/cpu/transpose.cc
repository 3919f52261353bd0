// Transpose.
#include <numeric>

#include "kernels/cpu/strided.h"

namespace onnx_iron {
namespace {

std::unique_ptr<Kernel> make_transpose(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const size_t rank = x.shape.size();
  Shape reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const Shape perm = node.attributes.integers("perm", reversed);
  Shape sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  require(sorted == Shape(reversed.rbegin(), reversed.rend()), node, "perm is ", text_of(perm),
          ", expected a permutation of the axes of x, ", text_of(x.shape));
  const Shape strides = strides_of(x.shape);
  Shape expected(rank), steps(rank);
  for (size_t i = 0; i < rank; ++i) {
    expected[i] = x.shape[perm[i]];
    steps[i] = strides[perm[i]];
  }
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, expected, text(" (perm is ", text_of(perm), ")"));
  return std::make_unique<Strided>(expected, steps, 0, x.dtype);
}

const Registration kTranspose("Transpose", make_transpose);

}  // namespace
}  // namespace onnx_iron
