// Trilu: the upper or the lower triangle of matrices, zeros in the other.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class Trilu : public Kernel {
 public:
  Trilu(const Shape& x, int64_t diagonal, bool upper, size_t size)
      : height_(x[x.size() - 2]),
        width_(x.back()),
        rows_(product(x, 0, x.size() - 1)),
        diagonal_(diagonal),
        upper_(upper),
        size_(static_cast<int64_t>(size)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        // The upper triangle begins here, the lower one ends behind it.
        const int64_t edge = row % height_ + diagonal_ + (upper_ ? 0 : 1);
        const int64_t cut = std::clamp<int64_t>(edge, 0, width_) * size_, whole = width_ * size_;
        const char* from = x + row * whole;
        char* to = out + row * whole;
        const int64_t first = upper_ ? cut : 0, last = upper_ ? whole : cut;
        std::memset(to, 0, first);
        std::memcpy(to + first, from + first, last - first);
        std::memset(to + last, 0, whole - last);
      }
    });
  }

 private:
  int64_t height_, width_, rows_, diagonal_;
  bool upper_;
  int64_t size_;
};

std::unique_ptr<Kernel> make_trilu(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  require(x.shape.size() >= 2, node, "x has shape ", text_of(x.shape), ", expected (..., M, N)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  const int64_t height = x.shape[x.shape.size() - 2], width = x.shape.back();
  // Further out, a diagonal is as good as the first outside.
  const int64_t diagonal =
      std::clamp<int64_t>(node.attributes.integer("diagonal", 0), -height - 1, width + 1);
  return std::make_unique<Trilu>(x.shape, diagonal, flag_of(node, "upper", true), size_of(x.dtype));
}

const Registration kTrilu("Trilu", make_trilu);

}  // namespace
}  // namespace onnx_iron
