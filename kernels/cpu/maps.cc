// Floor, Ceil, Round, Sin, Cos and Sign: functions of one operand that need no vectors of their
// own.
#include <cmath>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

float down(float x) { return std::floor(x); }
float up(float x) { return std::ceil(x); }
// Ties to the even one, as the processor rounds.
float nearest(float x) { return std::nearbyint(x); }
// In float64, which leaves an angle of thousands of turns its digits.
float sine(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
float cosine(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

template <typename T, float (*function)(float)>
class Map : public Kernel {
 public:
  explicit Map(int64_t count) : count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain / 4, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = narrow_one<T>(function(widen_one(x[i])));
    });
  }

 private:
  int64_t count_;
};

template <float (*function)(float)>
std::unique_ptr<Kernel> make_map(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
  const int64_t count = element_count(x.shape);
  if (x.dtype == DType::kFloat32) return std::make_unique<Map<float, function>>(count);
  return std::make_unique<Map<bf16, function>>(count);
}

const Registration kFloor("Floor", make_map<down>);
const Registration kCeil("Ceil", make_map<up>);
const Registration kRound("Round", make_map<nearest>);
const Registration kSin("Sin", make_map<sine>);
const Registration kCos("Cos", make_map<cosine>);
const Registration kSign("Sign", make_map<sign>);

}  // namespace
}  // namespace onnx_iron
