// Reading and writing parts at a per-call place: Narrow, SliceScatter, and Copy.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

void copy_bytes(const void* from, void* to, int64_t bytes, Threads& threads) {
  if (from == to) return;
  parallel_ranges(threads, bytes, 8 * kLightGrain, 64, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                end - begin);
  });
}

// Where along an axis a call reads or writes.
struct Place {
  int64_t start, rows;
};

// The place of one call; `length` entries are the most that it can take.
Place place_of(const char* op, const void* start, const void* rows, int64_t length, int64_t dim) {
  const Place place{scalar_at(start, 0), scalar_at(rows, length)};
  if (place.rows < 0 || place.rows > length) {
    throw std::invalid_argument(text(op, ": rows is ", place.rows, ", expected 0..", length));
  }
  if (place.start < 0 || place.start > dim - place.rows) {
    throw std::invalid_argument(text(op, ": start is ", place.start, " and rows ", place.rows,
                                     ", expected 0 <= start <= ", dim - place.rows,
                                     " (the axis has ", dim, " entries)"));
  }
  return place;
}

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
        std::memcpy(to, from + place.start * bytes_, there * bytes_);
        for (int64_t i = there; i < length_; ++i) {
          std::memcpy(to + i * bytes_, from + (dim_ - 1) * bytes_, bytes_);
        }
      }
    });
  }

 private:
  int64_t outer_, dim_, length_, bytes_;
  bool bounded_;
};

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
        std::memcpy(out + (o * dim_ + place.start) * bytes_, src + o * length_ * bytes_,
                    place.rows * bytes_);
      }
    });
  }

 private:
  int64_t outer_, dim_, length_, bytes_;
  bool bounded_;
};

class Copy : public Kernel {
 public:
  explicit Copy(int64_t bytes) : bytes_(bytes) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    copy_bytes(buffers.inputs[0], buffers.outputs[0], bytes_, threads);
  }

 private:
  int64_t bytes_;
};

int64_t axis_attribute(const Node& node) {
  return axis_of(node, node.attributes.integer("axis", 0), node.inputs[0].shape.size());
}

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

std::unique_ptr<Kernel> make_copy(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_same_dtype(node, "out", out, "x", x);
  require(element_count(out.shape) == element_count(x.shape), node, "out has shape ",
          text_of(out.shape), ", expected as many elements as x, ", text_of(x.shape));
  return std::make_unique<Copy>(element_count(x.shape) * size_of(x.dtype));
}

const Registration kNarrow("Narrow", make_narrow, narrow_shapes);
const Registration kSliceScatter("SliceScatter", make_slice_scatter);
const Registration kCopy("Copy", make_copy);

}  // namespace
}  // namespace onnx_iron
