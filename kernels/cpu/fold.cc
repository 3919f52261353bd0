// Fold: the last axis taken together, by the attribute `kind`. Sums are kept in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

const std::vector<std::string> kRealKinds = {"sum", "mean", "max",        "min",     "prod",
                                             "l1",  "l2",   "sum_square", "log_sum", "log_sum_exp"};
const std::vector<std::string> kIntegerKinds = {"sum", "max", "min", "prod"};
const std::vector<std::string> kBoolKinds = {"max", "min"};

// A NaN stays, and comes through.
template <typename T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}
template <typename T>
T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}

template <typename T>
double sum_exp(const T* x, int64_t n, double most) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp(widen_one(x[i]) - most);
  return total;
}

template <typename T>
float fold_real(const std::string& kind, const T* x, int64_t n) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  auto over = [&](double first, auto&& step) {
    for (int64_t i = 0; i < n; ++i) first = step(first, static_cast<double>(widen_one(x[i])));
    return first;
  };
  auto add = [](double a, double b) { return a + b; };
  if (kind == "sum") return static_cast<float>(over(0, add));
  if (kind == "mean") return static_cast<float>(over(0, add) / static_cast<double>(n));
  if (kind == "prod") {
    return static_cast<float>(over(1, [](double a, double b) { return a * b; }));
  }
  if (kind == "max") return static_cast<float>(over(-kInfinity, larger<double>));
  if (kind == "min") return static_cast<float>(over(kInfinity, smaller<double>));
  if (kind == "l1") {
    return static_cast<float>(over(0, [](double a, double b) { return a + std::fabs(b); }));
  }
  if (kind == "log_sum") return static_cast<float>(std::log(over(0, add)));
  if (kind == "log_sum_exp") {
    const double most = over(-kInfinity, larger<double>);
    if (!std::isfinite(most)) return static_cast<float>(most);
    return static_cast<float>(most + std::log(sum_exp(x, n, most)));
  }
  const double squares = over(0, [](double a, double b) { return a + b * b; });
  return static_cast<float>(kind == "l2" ? std::sqrt(squares) : squares);
}

// Sums and products wrap around.
template <typename T>
T fold_integer(const std::string& kind, const T* x, int64_t n) {
  using Unsigned = std::make_unsigned_t<T>;
  if (kind == "max" || kind == "min") {
    T found = kind == "max" ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    for (int64_t i = 0; i < n; ++i) {
      found = kind == "max" ? std::max(found, x[i]) : std::min(found, x[i]);
    }
    return found;
  }
  Unsigned total = kind == "sum" ? 0 : 1;
  for (int64_t i = 0; i < n; ++i) {
    const Unsigned value = static_cast<Unsigned>(x[i]);
    total = kind == "sum" ? total + value : total * value;
  }
  return static_cast<T>(total);
}

template <typename T>
T fold(const std::string& kind, const T* x, int64_t n) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    bool found = kind == "min";
    for (int64_t i = 0; i < n; ++i) found = kind == "max" ? found || x[i] : found && x[i];
    return found;
  } else if constexpr (std::is_integral_v<T>) {
    return fold_integer(kind, x, n);
  } else {
    return narrow_one<T>(fold_real(kind, x, n));
  }
}

template <typename T>
class Fold : public Kernel {
 public:
  Fold(std::string kind, const Shape& x)
      : kind_(std::move(kind)), width_(x.back()), rows_(product(x, 0, x.size() - 1)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) out[row] = fold(kind_, x + row * width_, width_);
    });
  }

 private:
  std::string kind_;
  int64_t width_, rows_;
};

std::unique_ptr<Kernel> make_fold(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const bool is_bool = x.dtype == DType::kBool;
  const std::vector<std::string>& kinds = is_real(x.dtype) ? kRealKinds
                                          : is_bool        ? kBoolKinds
                                                           : kIntegerKinds;
  const std::string kind = choice_of(node, "kind", "", kinds);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  Shape expected = x.shape;
  expected.pop_back();
  check_shape(node, "out", out, expected, " (x without its last dimension)");
  switch (x.dtype) {
    case DType::kFloat32:
      return std::make_unique<Fold<float>>(kind, x.shape);
    case DType::kBFloat16:
      return std::make_unique<Fold<bf16>>(kind, x.shape);
    case DType::kInt32:
      return std::make_unique<Fold<int32_t>>(kind, x.shape);
    case DType::kInt64:
      return std::make_unique<Fold<int64_t>>(kind, x.shape);
    default:
      return std::make_unique<Fold<uint8_t>>(kind, x.shape);
  }
}

const Registration kFold("Fold", make_fold);

}  // namespace
}  // namespace onnx_iron
