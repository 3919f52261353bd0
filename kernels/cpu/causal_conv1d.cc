// CausalConv1d: a depth-wise causal filter with carried state.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class CausalConv1d : public Kernel {
 public:
  CausalConv1d(const Node& node, int64_t dilation, bool silu)
      : loops_(loops().of(node.inputs[0].dtype)),
        size_(size_of(node.inputs[0].dtype)),
        biased_(node.has_input(3)),
        bounded_(node.has_input(4)) {
    const Shape &x = node.inputs[0].shape, &taps = node.inputs[1].shape;
    batch_ = x.size() == 3 ? x[0] : 1;
    rows_ = x[x.size() - 2];
    shape_ = {.channels = taps[1], .taps = taps[0], .dilation = dilation, .silu = silu};
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    const char* state = static_cast<const char*>(buffers.inputs[2]);
    const void* bias = input_or_null(buffers, biased_, 3);
    const int64_t rows = scalar_at(input_or_null(buffers, bounded_, 4), rows_);
    if (rows < 0 || rows > rows_) {
      throw std::invalid_argument(text("CausalConv1d: rows is ", rows, ", expected 0..", rows_,
                                       " (x has ", rows_, " rows)"));
    }
    if (shape_.channels == 0) return;
    char* y = static_cast<char*>(buffers.outputs[0]);
    const int64_t row_bytes = shape_.channels * size_;
    const int64_t before = kept_rows();
    // One row is divided by channels, several by rows.
    const bool by_rows = rows_ > 1;
    const int64_t parts = by_rows ? rows_ : shape_.channels;
    const int64_t grain = kLightGrain / shape_.taps / (by_rows ? shape_.channels : 1);
    for (int64_t b = 0; b < batch_; ++b) {
      parallel_ranges(threads, parts, grain, by_rows ? 4 : 64, [&](int64_t begin, int64_t end) {
        loops_.causal_conv1d(shape_, x + b * rows_ * row_bytes, buffers.inputs[1],
                             state + b * before * row_bytes, bias, y + b * rows_ * row_bytes,
                             by_rows ? begin : 0, by_rows ? end : rows_, by_rows ? 0 : begin,
                             by_rows ? shape_.channels : end);
      });
    }
    // Only now, for y is made from the old state, which may be the same memory.
    char* new_state = static_cast<char*>(buffers.outputs[1]);
    for (int64_t b = 0; b < batch_ && before > 0; ++b) {
      keep(state + b * before * row_bytes, x + b * rows_ * row_bytes, rows,
           new_state + b * before * row_bytes);
    }
  }

 private:
  int64_t kept_rows() const { return (shape_.taps - 1) * shape_.dilation; }

  // The last taps - 1 rows of the old ones followed by x[:rows].
  void keep(const char* state, const char* x, int64_t rows, char* new_state) const {
    const int64_t row_bytes = shape_.channels * size_, before = kept_rows();
    const int64_t kept = std::max<int64_t>(before - rows, 0), taken = before - kept;
    if (kept > 0) std::memmove(new_state, state + rows * row_bytes, kept * row_bytes);
    copy_some(new_state + kept * row_bytes, x + (rows - taken) * row_bytes, taken * row_bytes);
  }

  const TypedLoops& loops_;
  int64_t size_, batch_, rows_;
  bool biased_, bounded_;
  ConvShape shape_;
};

int64_t dilation_of(const Node& node) {
  const int64_t dilation = node.attributes.integer("dilation", 1);
  require(dilation >= 1, node, "dilation is ", dilation, ", expected at least 1");
  return dilation;
}

std::vector<Shape> causal_conv1d_shapes(const Node& node) {
  check_inputs(node, 3, 5);
  const Operand &x = node.inputs[0], &taps = node.inputs[1];
  require(x.shape.size() == 2 || x.shape.size() == 3, node, "x has shape ", text_of(x.shape),
          ", expected (T, C) or (B, T, C)");
  const int64_t channels = x.shape.back();
  require(taps.shape.size() == 2 && taps.shape[0] >= 1 && taps.shape[1] == channels, node,
          "taps has shape ", text_of(taps.shape), ", expected (K, ", channels,
          ") with K >= 1 (x has shape ", text_of(x.shape), ")");
  Shape kept = x.shape;
  int64_t before = 0;
  require(!__builtin_mul_overflow(taps.shape[0] - 1, dilation_of(node), &before), node,
          "dilation is ", dilation_of(node), ", expected less for ", taps.shape[0], " taps");
  kept[kept.size() - 2] = before;
  check_shape(node, "state", node.inputs[2], kept, text(" (taps has ", taps.shape[0], " rows)"));
  return {x.shape, kept};
}

std::unique_ptr<Kernel> make_causal_conv1d(const Node& node) {
  check_counts(node, 3, 5, 2);
  const Operand& x = node.inputs[0];
  check_real(node, "x", x);
  check_same_dtype(node, "taps", node.inputs[1], "x", x);
  check_same_dtype(node, "state", node.inputs[2], "x", x);
  const std::vector<Shape> expected = causal_conv1d_shapes(node);
  if (node.has_input(3)) {
    check_same_dtype(node, "bias", node.inputs[3], "x", x);
    check_shape(node, "bias", node.inputs[3], {x.shape.back()}, " (x's channels)");
  }
  if (node.has_input(4)) check_scalar(node, "rows", node.inputs[4]);
  check_same_dtype(node, "y", node.outputs[0], "x", x);
  check_shape(node, "y", node.outputs[0], expected[0], " (as x)");
  require(node.outputs[1].present, node, "new_state is omitted, expected a tensor");
  check_same_dtype(node, "new_state", node.outputs[1], "x", x);
  check_shape(node, "new_state", node.outputs[1], expected[1], " (as state)");
  const bool silu = choice_of(node, "activation", "none", {"none", "silu"}) == "silu";
  return std::make_unique<CausalConv1d>(node, dilation_of(node), silu);
}

const Registration kCausalConv1d("CausalConv1d", make_causal_conv1d, causal_conv1d_shapes);

}  // namespace
}  // namespace onnx_iron
