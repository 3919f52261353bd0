// RoPE: rows turned by rows of angles.
#include <algorithm>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// The rows of one sequence, of (rows, D) or (B, rows, D).
int64_t of_sequence(const Operand& x) { return x.shape[x.shape.size() - 2]; }

class RoPE : public Kernel {
 public:
  RoPE(const Operand& x, const Operand& angles, bool interleaved)
      : loops_(loops().of(x.dtype)),
        size_(size_of(x.dtype)),
        angle_size_(size_of(angles.dtype)),
        rows_(element_count(x.shape) / std::max<int64_t>(x.shape.back(), 1)),
        width_(x.shape.back()),
        repeats_(of_sequence(x) / of_sequence(angles)),
        angle_rows_(element_count(angles.shape) / std::max<int64_t>(angles.shape.back(), 1)),
        float_angles_(angles.dtype == DType::kFloat32),
        interleaved_(interleaved) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    const char* angles = static_cast<const char*>(buffers.inputs[1]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * width_ * size_;
        // Sequences that share their angles begin with the first row of them again.
        const char* angle_row = angles + row / repeats_ % angle_rows_ * width_ * angle_size_;
        loops_.rope(x + at, angle_row, float_angles_, out + at, width_, interleaved_);
      }
    });
  }

 private:
  const TypedLoops& loops_;
  int64_t size_, angle_size_, rows_, width_, repeats_, angle_rows_;
  bool float_angles_, interleaved_;
};

std::unique_ptr<Kernel> make_rope(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &x = node.inputs[0], &angles = node.inputs[1], &out = node.outputs[0];
  check_real(node, "x", x);
  check_dtype(node, "angles", angles, {x.dtype, DType::kFloat32});
  check_same_dtype(node, "out", out, "x", x);
  require((x.shape.size() == 2 || x.shape.size() == 3) && x.shape.back() % 2 == 0, node,
          "x has shape ", text_of(x.shape), ", expected (R, D) or (B, R, D) with an even D");
  const int64_t width = x.shape.back();
  const bool ranked = angles.shape.size() == 2 ||
                      (angles.shape.size() == x.shape.size() && angles.shape[0] == x.shape[0]);
  require(ranked && angles.shape.back() == width && of_sequence(angles) > 0 &&
              of_sequence(x) % of_sequence(angles) == 0,
          node, "angles has shape ", text_of(angles.shape), ", expected (A, ", width,
          ") with A a divisor of ", of_sequence(x), " (x's rows)",
          x.shape.size() == 3 ? text(", or (", x.shape[0], ", A, ", width, ")") : std::string());
  check_shape(node, "out", out, x.shape, " (as x)");
  return std::make_unique<RoPE>(x, angles, flag_of(node, "interleaved", false));
}

const Registration kRoPE("RoPE", make_rope);

}  // namespace
}  // namespace onnx_iron
