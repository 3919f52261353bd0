// The standard RotaryEmbedding: each position's elements turned by rows of two tables.

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// x is (batch, heads, length, width), or (batch, length, heads * width).
struct Layout {
  int64_t batch, heads, length, width;
  bool heads_first;

  int64_t rows() const { return batch * heads * length; }
  // The position of a row, counted over all batches.
  int64_t position_of(int64_t row) const {
    if (!heads_first) return row / heads;
    return row / (heads * length) * length + row % length;
  }
};

class RotaryEmbedding : public Kernel {
 public:
  RotaryEmbedding(const Node& node, const Layout& layout, int64_t turned, bool interleaved)
      : loops_(loops().of(node.inputs[0].dtype)),
        size_(size_of(node.inputs[0].dtype)),
        layout_(layout),
        half_(turned / 2),
        interleaved_(interleaved),
        placed_(node.has_input(3)) {
    if (!placed_) return;
    const Operand& positions = node.inputs[3];
    entries_ = node.inputs[1].shape[0];
    wide_ = positions.dtype == DType::kInt64;
    // One number is where the first row stands.
    first_alone_ = element_count(positions.shape) == 1;
  }

  // Of each position its angles, and of each thread nothing.
  size_t scratch_bytes() const override {
    return sizeof(float) * layout_.batch * layout_.length * 4 * padded(half_);
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t positions = layout_.batch * layout_.length;
    for (int64_t i = 0; placed_ && i < positions; ++i) {
      const int64_t entry = entry_of(buffers, i);
      if (entry >= 0 && entry < entries_) continue;
      throw std::invalid_argument(text("RotaryEmbedding: position ", i, " is ", entry,
                                       ", expected 0..", entries_ - 1, " (the tables' rows)"));
    }
    float* scratch = static_cast<float*>(buffers.scratch);
    const int64_t stride = 4 * padded(half_);
    parallel_rows(threads, positions, 2 * half_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) angles_of(buffers, i, scratch + i * stride);
    });
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    const int64_t row_bytes = layout_.width * size_, turned_bytes = 2 * half_ * size_;
    parallel_rows(threads, layout_.rows(), layout_.width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * row_bytes;
        loops_.rope(x + at, scratch + layout_.position_of(row) * stride, true, out + at, 2 * half_,
                    interleaved_);
        if (turned_bytes < row_bytes && x != out) {
          copy_some(out + at + turned_bytes, x + at + turned_bytes, row_bytes - turned_bytes);
        }
      }
    });
  }

 private:
  int64_t entry_of(const Buffers& buffers, int64_t i) const {
    if (!placed_) return i;
    const int64_t at = first_alone_ ? 0 : i;
    const int64_t given = wide_ ? static_cast<const int64_t*>(buffers.inputs[3])[at]
                                : static_cast<const int32_t*>(buffers.inputs[3])[at];
    return first_alone_ ? given + i % layout_.length : given;
  }

  // The row (cos0, sin0, cos1, sin1, ...) of a position; the two tables' rows are widened behind
  // it.
  void angles_of(const Buffers& buffers, int64_t i, float* row) const {
    const int64_t from = entry_of(buffers, i) * half_ * size_;
    float *cosines = row + 2 * padded(half_), *sines = cosines + padded(half_);
    loops_.widen(static_cast<const char*>(buffers.inputs[1]) + from, cosines, half_);
    loops_.widen(static_cast<const char*>(buffers.inputs[2]) + from, sines, half_);
    for (int64_t j = 0; j < half_; ++j) {
      row[2 * j] = cosines[j];
      row[2 * j + 1] = sines[j];
    }
  }

  const TypedLoops& loops_;
  int64_t size_;
  Layout layout_;
  int64_t half_, entries_ = 0;
  bool interleaved_, placed_, wide_ = false, first_alone_ = false;
};

Layout layout_of(const Node& node) {
  const Shape& x = node.inputs[0].shape;
  const int64_t heads = node.attributes.integer("heads");
  if (x.size() == 4) {
    require(x[1] == heads, node, "x has shape ", text_of(x), ", expected ", heads, " heads");
    return {x[0], heads, x[2], x[3], true};
  }
  require(x.size() == 3 && heads > 0 && x[2] % heads == 0, node, "x has shape ", text_of(x),
          ", expected (B, H, S, D) or (B, S, ", heads, " * D)");
  return {x[0], heads, x[1], x[2] / heads, false};
}

std::unique_ptr<Kernel> make_rotary_embedding(const Node& node) {
  check_counts(node, 3, 4);
  const Operand &x = node.inputs[0], &cosines = node.inputs[1], &sines = node.inputs[2];
  check_real(node, "x", x);
  check_same_dtype(node, "cos", cosines, "x", x);
  check_same_dtype(node, "sin", sines, "x", x);
  check_same_dtype(node, "out", node.outputs[0], "x", x);
  check_shape(node, "out", node.outputs[0], x.shape, " (as x)");
  const Layout layout = layout_of(node);
  const int64_t turned = node.attributes.integer("turned");
  require(turned > 0 && turned % 2 == 0 && turned <= layout.width, node, "turned is ", turned,
          ", expected an even number up to ", layout.width);
  Shape expected = {layout.batch, layout.length, turned / 2};
  if (node.has_input(3)) {
    const Operand& positions = node.inputs[3];
    check_dtype(node, "positions", positions, {DType::kInt32, DType::kInt64});
    const int64_t count = element_count(positions.shape);
    require(count == 1 || count == layout.batch * layout.length, node, "positions has shape ",
            text_of(positions.shape), ", expected (", layout.batch, ", ", layout.length,
            ") or (1)");
    require(cosines.shape.size() == 2, node, "cos has shape ", text_of(cosines.shape),
            ", expected (entries, ", turned / 2, ")");
    expected = {cosines.shape[0], turned / 2};
  }
  check_shape(node, "cos", cosines, expected);
  check_shape(node, "sin", sines, expected);
  return std::make_unique<RotaryEmbedding>(node, layout, turned,
                                           flag_of(node, "interleaved", false));
}

const Registration kRotaryEmbedding("RotaryEmbedding", make_rotary_embedding);

}  // namespace
}  // namespace onnx_iron
