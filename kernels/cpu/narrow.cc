// Narrow: a part read at a per-call place.
#include "kernels/cpu/slices.h"

namespace onnx_iron {
namespace {

class Narrow : public Kernel {
 public:
  Narrow(const Operand& x, int64_t axis, int64_t length, bool bounded)
      : outer_(product(x.shape, 0, axis)),
        dim_(x.shape[axis]),
        length_(length),
        bytes_(product(x.shape, axis + 1, x.shape.size()) * size_of(x.dtype)),
        bounded_(bounded) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const Place place =
        place_of("Narrow", buffers.inputs[1], input_or_null(buffers, bounded_, 2), length_, dim_);
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    // Entries that are there move as one piece; the others repeat the last one.
    const int64_t there = std::clamp<int64_t>(dim_ - place.start, 0, length_);
    parallel_rows(threads, outer_, length_ * bytes_, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const char* from = x + o * dim_ * bytes_;
        char* to = out + o * length_ * bytes_;
        copy_some(to, from + place.start * bytes_, there * bytes_);
        for (int64_t i = there; i < length_; ++i) {
          copy_some(to + i * bytes_, from + (dim_ - 1) * bytes_, bytes_);
        }
      }
    });
  }

 private:
  int64_t outer_, dim_, length_, bytes_;
  bool bounded_;
};

std::vector<Shape> narrow_shapes(const Node& node) {
  check_inputs(node, 2, 3);
  const Operand& x = node.inputs[0];
  const int64_t axis = axis_attribute(node), length = node.attributes.integer("length");
  require(length >= 0 && length <= x.shape[axis], node, "length is ", length, ", expected 0..",
          x.shape[axis], " (x has shape ", text_of(x.shape), ", axis is ", axis, ")");
  Shape expected = x.shape;
  expected[axis] = length;
  return {expected};
}

std::unique_ptr<Kernel> make_narrow(const Node& node) {
  check_counts(node, 2, 3);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_scalar(node, "start", node.inputs[1]);
  if (node.has_input(2)) check_scalar(node, "rows", node.inputs[2]);
  const Shape expected = narrow_shapes(node)[0];
  const int64_t axis = axis_attribute(node), length = expected[axis];
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, expected, text(" (axis is ", axis, ", length ", length, ")"));
  return std::make_unique<Narrow>(x, axis, length, node.has_input(2));
}

const Registration kNarrow("Narrow", make_narrow, narrow_shapes);

}  // namespace
}  // namespace onnx_iron
