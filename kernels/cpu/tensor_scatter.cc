// TensorScatter: rows written into a cache, at a place for each sequence.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// x is (B, parts, entries, rest), the entries along `axis`; update has `rows` of them, or is
// (B, rows, parts, rest) where its rows come first. A cache that is fresh keeps what is before the
// rows and has zeros after them, where it is not x itself; it may have more entries than x.
class TensorScatter : public Kernel {
 public:
  TensorScatter(const Node& node, size_t axis)
      : batch_(node.inputs[0].shape[0]),
        parts_(product(node.inputs[0].shape, 1, axis)),
        before_(node.inputs[0].shape[axis]),
        entries_(node.outputs[0].shape[axis]),
        bytes_(product(node.inputs[0].shape, axis + 1, node.inputs[0].shape.size()) *
               static_cast<int64_t>(size_of(node.inputs[0].dtype))),
        rows_first_(flag_of(node, "rows_first", false)),
        circular_(flag_of(node, "circular", false)),
        fresh_(flag_of(node, "fresh", false)),
        placed_(node.has_input(2)),
        wide_(placed_ && node.inputs[2].dtype == DType::kInt64) {
    const Shape& update = node.inputs[1].shape;
    rows_ = rows_first_ ? update[1] : update[axis];
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t start = start_of(buffers, b);
      const int64_t most = circular_ ? entries_ - 1 : entries_ - rows_;
      if (start < 0 || start > most) {
        throw std::invalid_argument(text("TensorScatter: write index ", b, " is ", start,
                                         ", expected 0..", most, " (the cache has ", entries_,
                                         " entries, the update ", rows_, ")"));
      }
    }
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    const char* update = static_cast<const char*>(buffers.inputs[1]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    const int64_t moved = x == out ? rows_ : entries_;
    parallel_rows(threads, batch_ * parts_, moved * bytes_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / parts_, part = i % parts_, start = start_of(buffers, b);
        char* to = out + i * entries_ * bytes_;
        if (x != out) keep(x + i * before_ * bytes_, to, start);
        const int64_t first = rows_first_ ? b * rows_ * parts_ + part : i * rows_;
        const int64_t stride = rows_first_ ? parts_ : 1;
        for (int64_t row = 0; row < rows_; ++row) {
          const int64_t at = circular_ ? (start + row) % entries_ : start + row;
          copy(update + (first + row * stride) * bytes_, to + at * bytes_, bytes_);
        }
      }
    });
  }

  // The rest of a cache that is updated in place stays where it is.
  Work work(const Buffers& buffers, const Work&) const override {
    const int64_t copied = buffers.inputs[0] != buffers.outputs[0] ? before_ + entries_ : 0;
    return {0, batch_ * parts_ * bytes_ * (2 * rows_ + copied)};
  }

 private:
  static void copy(const char* from, char* to, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  int64_t start_of(const Buffers& buffers, int64_t b) const {
    if (!placed_) return 0;
    if (wide_) return static_cast<const int64_t*>(buffers.inputs[2])[b];
    return static_cast<const int32_t*>(buffers.inputs[2])[b];
  }

  // What was there before.
  void keep(const char* from, char* to, int64_t start) const {
    const int64_t kept = fresh_ ? std::min(start, before_) : entries_;
    copy(from, to, kept * bytes_);
    if (kept < entries_ && bytes_ > 0)
      std::memset(to + kept * bytes_, 0, (entries_ - kept) * bytes_);
  }

  int64_t batch_, parts_, before_, entries_, bytes_, rows_;
  bool rows_first_, circular_, fresh_, placed_, wide_;
};

std::unique_ptr<Kernel> make_tensor_scatter(const Node& node) {
  check_counts(node, 2, 3);
  const Operand &x = node.inputs[0], &update = node.inputs[1], &out = node.outputs[0];
  require(x.shape.size() >= 2, node, "x has shape ", text_of(x.shape), ", expected 2 axes or more");
  const int64_t axis = axis_of(node, node.attributes.integer("axis", -2), x.shape.size());
  require(axis > 0, node, "axis is 0, the batch's");
  check_same_dtype(node, "update", update, "x", x);
  Shape expected = x.shape;
  if (flag_of(node, "rows_first", false)) {
    require(x.shape.size() == 4 && axis == 2 && update.shape.size() == 4, node,
            "rows_first needs (B, H, S, D)");
    expected = {x.shape[0], update.shape[1], x.shape[1], x.shape[3]};
  } else if (update.shape.size() == expected.size()) {
    expected[axis] = update.shape[axis];
  }
  check_shape(node, "update", update, expected, text(" (as x but for axis ", axis, ")"));
  if (node.has_input(2)) {
    check_dtype(node, "write_indices", node.inputs[2], {DType::kInt32, DType::kInt64});
    check_shape(node, "write_indices", node.inputs[2], {x.shape[0]}, " (x's batch)");
  }
  Shape result = x.shape;
  if (flag_of(node, "fresh", false) && out.shape.size() == result.size()) {
    result[axis] = std::max(result[axis], out.shape[axis]);
  }
  const int64_t rows = flag_of(node, "rows_first", false) ? update.shape[1] : update.shape[axis];
  require(rows <= result[axis], node, "update has ", rows, " entries, expected at most ",
          result[axis], " (the cache's)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, result, " (as x)");
  return std::make_unique<TensorScatter>(node, static_cast<size_t>(axis));
}

const Registration kTensorScatter("TensorScatter", make_tensor_scatter);

}  // namespace
}  // namespace onnx_iron
