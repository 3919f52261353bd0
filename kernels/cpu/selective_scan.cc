// SelectiveScan: a state for each channel that decays and takes in rows by their own steps.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

enum Input : size_t { kX, kDt, kA, kB, kC, kState, kD, kDtBias, kRows };

class SelectiveScan : public Kernel {
 public:
  SelectiveScan(const Node& node, bool softplus)
      : loops_(loops().of(node.inputs[kX].dtype)),
        size_(size_of(node.inputs[kX].dtype)),
        skips_(node.has_input(kD)),
        biased_(node.has_input(kDtBias)),
        bounded_(node.has_input(kRows)) {
    const Shape &x = node.inputs[kX].shape, &a = node.inputs[kA].shape;
    batch_ = x.size() == 3 ? x[0] : 1;
    rows_ = x[x.size() - 2];
    shape_ = {.channels = a[0], .states = a[1], .softplus = softplus};
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t rows = scalar_at(input_or_null(buffers, bounded_, kRows), rows_);
    if (rows < 0 || rows > rows_) {
      throw std::invalid_argument(text("SelectiveScan: rows is ", rows, ", expected 0..", rows_,
                                       " (x has ", rows_, " rows)"));
    }
    const auto part = [&](size_t input, int64_t bytes) {
      return static_cast<const char*>(buffers.inputs[input]) + bytes;
    };
    const int64_t row_bytes = shape_.channels * size_, pairs = shape_.channels * shape_.states;
    const int64_t grain = kLightGrain / std::max<int64_t>(1, 8 * rows * shape_.states);
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t rows_at = i * rows_ * row_bytes, pairs_at = i * rows_ * shape_.states * size_;
      ScanOperands operands = {
          .x = part(kX, rows_at),
          .dt = part(kDt, rows_at),
          .a = static_cast<const float*>(buffers.inputs[kA]),
          .b = part(kB, pairs_at),
          .c = part(kC, pairs_at),
          .state = static_cast<const float*>(buffers.inputs[kState]) + i * pairs,
          .d = static_cast<const float*>(input_or_null(buffers, skips_, kD)),
          .dt_bias = static_cast<const float*>(input_or_null(buffers, biased_, kDtBias)),
          .y = static_cast<char*>(buffers.outputs[0]) + rows_at,
          .new_state = static_cast<float*>(buffers.outputs[1]) + i * pairs,
      };
      parallel_ranges(threads, shape_.channels, grain, 8, [&](int64_t begin, int64_t end) {
        loops_.selective_scan(shape_, operands, rows, begin, end);
      });
      clear_some(static_cast<char*>(operands.y) + rows * row_bytes, (rows_ - rows) * row_bytes);
    }
  }

 private:
  const TypedLoops& loops_;
  int64_t size_, batch_, rows_;
  bool skips_, biased_, bounded_;
  ScanShape shape_;
};

std::vector<Shape> selective_scan_shapes(const Node& node) {
  check_inputs(node, 6, 9);
  const Shape &x = node.inputs[kX].shape, &a = node.inputs[kA].shape;
  require(x.size() == 2 || x.size() == 3, node, "x has shape ", text_of(x),
          ", expected (T, C) or (B, T, C)");
  const int64_t channels = x.back();
  require(a.size() == 2 && a[0] == channels, node, "a has shape ", text_of(a), ", expected (",
          channels, ", N) (x has shape ", text_of(x), ")");
  Shape per_row = x, state(x.begin(), x.end() - 2);
  per_row.back() = a[1];
  state.insert(state.end(), a.begin(), a.end());
  const std::string because = text(" (x has shape ", text_of(x), " and a ", text_of(a), ")");
  check_shape(node, "dt", node.inputs[kDt], x, because);
  check_shape(node, "b", node.inputs[kB], per_row, because);
  check_shape(node, "c", node.inputs[kC], per_row, because);
  check_shape(node, "state", node.inputs[kState], state, because);
  return {x, state};
}

std::unique_ptr<Kernel> make_selective_scan(const Node& node) {
  check_counts(node, 6, 9, 2);
  const Operand& x = node.inputs[kX];
  check_real(node, "x", x);
  check_same_dtype(node, "dt", node.inputs[kDt], "x", x);
  check_same_dtype(node, "b", node.inputs[kB], "x", x);
  check_same_dtype(node, "c", node.inputs[kC], "x", x);
  check_dtype(node, "a", node.inputs[kA], {DType::kFloat32});
  check_dtype(node, "state", node.inputs[kState], {DType::kFloat32});
  const std::vector<Shape> expected = selective_scan_shapes(node);
  for (const auto& [input, name] : {std::pair{kD, "d"}, std::pair{kDtBias, "dt_bias"}}) {
    if (!node.has_input(input)) continue;
    check_dtype(node, name, node.inputs[input], {DType::kFloat32});
    check_shape(node, name, node.inputs[input], {x.shape.back()}, " (x's channels)");
  }
  if (node.has_input(kRows)) check_scalar(node, "rows", node.inputs[kRows]);
  check_same_dtype(node, "y", node.outputs[0], "x", x);
  check_shape(node, "y", node.outputs[0], expected[0], " (as x)");
  require(node.outputs[1].present, node, "new_state is omitted, expected a tensor");
  check_dtype(node, "new_state", node.outputs[1], {DType::kFloat32});
  check_shape(node, "new_state", node.outputs[1], expected[1], " (as state)");
  return std::make_unique<SelectiveScan>(node, flag_of(node, "dt_softplus", false));
}

const Registration kSelectiveScan("SelectiveScan", make_selective_scan, selective_scan_shapes);

}  // namespace
}  // namespace onnx_iron
