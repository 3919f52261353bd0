// Range: integers from a first one on, as many as the output has.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

template <typename T>
class Range : public Kernel {
 public:
  explicit Range(int64_t count) : count_(count) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    using Unsigned = std::make_unsigned_t<T>;  // which may wrap around
    const Unsigned start = static_cast<Unsigned>(*static_cast<const T*>(buffers.inputs[0]));
    const Unsigned delta = static_cast<Unsigned>(*static_cast<const T*>(buffers.inputs[1]));
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<T>(start + static_cast<Unsigned>(i) * delta);
      }
    });
  }

 private:
  int64_t count_;
};

std::unique_ptr<Kernel> make_range(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &start = node.inputs[0], &delta = node.inputs[1], &out = node.outputs[0];
  check_dtype(node, "start", start, {DType::kInt32, DType::kInt64});
  check_same_dtype(node, "delta", delta, "start", start);
  check_same_dtype(node, "out", out, "start", start);
  for (const Operand* scalar : {&start, &delta}) {
    require(element_count(scalar->shape) == 1, node, "start and delta have shapes ",
            text_of(start.shape), " and ", text_of(delta.shape), ", expected one element of each");
  }
  require(out.shape.size() == 1, node, "out has shape ", text_of(out.shape), ", expected (N,)");
  if (start.dtype == DType::kInt32) return std::make_unique<Range<int32_t>>(out.shape[0]);
  return std::make_unique<Range<int64_t>>(out.shape[0]);
}

const Registration kRange("Range", make_range);

}  // namespace
}  // namespace onnx_iron
