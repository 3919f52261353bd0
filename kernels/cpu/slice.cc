// Slice.
#include <numeric>

#include "kernels/cpu/strided.h"

namespace onnx_iron {
namespace {

std::unique_ptr<Kernel> make_slice(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const Shape starts = node.attributes.integers("starts");
  Shape all(starts.size());
  std::iota(all.begin(), all.end(), 0);
  const Shape axes = node.attributes.integers("axes", all);
  const Shape jumps = node.attributes.integers("steps", Shape(starts.size(), 1));
  require(axes.size() == starts.size() && jumps.size() == starts.size(), node,
          "starts, axes and steps have ", starts.size(), ", ", axes.size(), " and ", jumps.size(),
          " entries, expected as many of each");
  check_same_dtype(node, "out", out, "x", x);
  require(out.shape.size() == x.shape.size(), node, "out has shape ", text_of(out.shape),
          ", expected as many dimensions as x, ", text_of(x.shape));
  Shape steps = strides_of(x.shape), expected = x.shape;
  int64_t first = 0;
  std::vector<bool> seen(x.shape.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axis_of(node, axes[i], x.shape.size());
    require(!seen[axis], node, "axes is ", text_of(axes), ", expected every axis once");
    seen[axis] = true;
    const int64_t dim = x.shape[axis], length = out.shape[axis], step = jumps[i];
    const int64_t start = starts[i] < 0 ? starts[i] + dim : starts[i];
    require(step != 0, node, "steps[", i, "] is 0, expected another number");
    expected[axis] = length;
    if (length == 0) continue;
    // The last entry is not computed before it is known to fit.
    const int64_t room = start < 0 || start >= dim ? -1
                         : step > 0                ? (dim - 1 - start) / step
                                                   : start / -std::max<int64_t>(step, -dim);
    require(room >= length - 1, node, "starts[", i, "] is ", starts[i], " and steps[", i, "] ",
            step, ", expected ", length, " entries (out's) within axis ", axis, " of x, ",
            text_of(x.shape));
    first += start * steps[axis];
    steps[axis] *= length == 1 ? 1 : step;
  }
  check_shape(node, "out", out, expected, " (x but for the axes)");
  return std::make_unique<Strided>(out.shape, steps, first, x.dtype);
}

const Registration kSlice("Slice", make_slice);

}  // namespace
}  // namespace onnx_iron
