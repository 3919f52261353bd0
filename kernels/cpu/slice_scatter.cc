// SliceScatter: a part written at a per-call place.
#include "kernels/cpu/slices.h"

namespace onnx_iron {
namespace {

class SliceScatter : public Kernel {
 public:
  SliceScatter(const Operand& x, const Operand& src, int64_t axis, bool bounded)
      : outer_(product(x.shape, 0, axis)),
        dim_(x.shape[axis]),
        length_(src.shape[axis]),
        bytes_(product(x.shape, axis + 1, x.shape.size()) * size_of(x.dtype)),
        bounded_(bounded) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const Place place = place_of("SliceScatter", buffers.inputs[2],
                                 input_or_null(buffers, bounded_, 3), length_, dim_);
    const char* src = static_cast<const char*>(buffers.inputs[1]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    copy_bytes(buffers.inputs[0], out, outer_ * dim_ * bytes_, threads);
    parallel_rows(threads, outer_, place.rows * bytes_, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        copy_some(out + (o * dim_ + place.start) * bytes_, src + o * length_ * bytes_,
                  place.rows * bytes_);
      }
    });
  }

  // The rest of a state that is updated in place stays where it is.
  Work work(const Buffers& buffers, const Work&) const override {
    const int64_t rows = scalar_at(input_or_null(buffers, bounded_, 3), length_);
    const bool copied = buffers.inputs[0] != buffers.outputs[0];
    return {0, 2 * outer_ * bytes_ * (rows + (copied ? dim_ : 0))};
  }

 private:
  int64_t outer_, dim_, length_, bytes_;
  bool bounded_;
};

std::unique_ptr<Kernel> make_slice_scatter(const Node& node) {
  check_counts(node, 3, 4);
  const Operand &x = node.inputs[0], &src = node.inputs[1], &out = node.outputs[0];
  check_scalar(node, "start", node.inputs[2]);
  if (node.has_input(3)) check_scalar(node, "rows", node.inputs[3]);
  const int64_t axis = axis_attribute(node);
  check_same_dtype(node, "src", src, "x", x);
  Shape expected = x.shape;
  if (src.shape.size() == expected.size()) expected[axis] = src.shape[axis];
  check_shape(node, "src", src, expected, text(" (as x but for axis ", axis, ")"));
  require(src.shape[axis] <= x.shape[axis], node, "src has ", src.shape[axis],
          " entries along axis ", axis, ", expected at most ", x.shape[axis], " (x's)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  return std::make_unique<SliceScatter>(x, src, axis, node.has_input(3));
}

const Registration kSliceScatter("SliceScatter", make_slice_scatter);

}  // namespace
}  // namespace onnx_iron
