// CumSum over the last axis; `reverse` from its end, `exclusive` without the entry itself.
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

double total_of(float x) { return x; }
double total_of(bf16 x) { return widen_one(x); }
uint64_t total_of(int32_t x) { return static_cast<uint64_t>(x); }
uint64_t total_of(int64_t x) { return static_cast<uint64_t>(x); }

// Integers wrap around.
template <typename T, typename Total>
T rounded(Total total) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(total);
  } else {
    return narrow_one<T>(static_cast<float>(total));
  }
}

template <typename T>
class CumSum : public Kernel {
 public:
  CumSum(const Shape& x, bool exclusive, bool reverse)
      : width_(x.back()),
        rows_(product(x, 0, x.size() - 1)),
        exclusive_(exclusive),
        reverse_(reverse) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        decltype(total_of(T{})) total = 0;
        for (int64_t i = 0; i < width_; ++i) {
          const int64_t at = row * width_ + (reverse_ ? width_ - 1 - i : i);
          const auto before = total;
          total += total_of(x[at]);
          out[at] = rounded<T>(exclusive_ ? before : total);
        }
      }
    });
  }

 private:
  int64_t width_, rows_;
  bool exclusive_, reverse_;
};

std::unique_ptr<Kernel> make_cum_sum(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_dtype(node, "x", x, {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kInt64});
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  const bool exclusive = flag_of(node, "exclusive", false);
  const bool reverse = flag_of(node, "reverse", false);
  switch (x.dtype) {
    case DType::kFloat32:
      return std::make_unique<CumSum<float>>(x.shape, exclusive, reverse);
    case DType::kBFloat16:
      return std::make_unique<CumSum<bf16>>(x.shape, exclusive, reverse);
    case DType::kInt32:
      return std::make_unique<CumSum<int32_t>>(x.shape, exclusive, reverse);
    default:
      return std::make_unique<CumSum<int64_t>>(x.shape, exclusive, reverse);
  }
}

const Registration kCumSum("CumSum", make_cum_sum);

}  // namespace
}  // namespace onnx_iron
