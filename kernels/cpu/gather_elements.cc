// GatherElements: along an axis, each element of the output is taken by a number of its own.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// T has the elements' size; I is the numbers'.
template <typename T, typename I>
class GatherElements : public Kernel {
 public:
  GatherElements(const Shape& data, const Shape& out, size_t axis)
      : out_(out), axis_(axis), entries_(data[axis]), count_(element_count(out)) {
    for (size_t i = 0; i < data.size(); ++i) strides_.push_back(product(data, i + 1, data.size()));
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* data = static_cast<const T*>(buffers.inputs[0]);
    const I* indices = static_cast<const I*>(buffers.inputs[1]);
    for (int64_t i = 0; i < count_; ++i) {
      if (indices[i] >= -entries_ && indices[i] < entries_) continue;
      throw std::invalid_argument(text("GatherElements: indices has ", indices[i], ", expected ",
                                       -entries_, "..", entries_ - 1));
    }
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain / 4, 64, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        int64_t from = 0, rest = at;
        for (size_t i = out_.size(); i-- > 0; rest /= out_[i]) {
          const int64_t index = indices[at];
          const int64_t place = i != axis_ ? rest % out_[i] : index < 0 ? index + entries_ : index;
          from += place * strides_[i];
        }
        out[at] = data[from];
      }
    });
  }

 private:
  Shape out_, strides_;
  size_t axis_;
  int64_t entries_, count_;
};

template <typename T>
std::unique_ptr<Kernel> made(const Node& node, size_t axis) {
  const Shape &data = node.inputs[0].shape, &out = node.outputs[0].shape;
  if (node.inputs[1].dtype == DType::kInt64) {
    return std::make_unique<GatherElements<T, int64_t>>(data, out, axis);
  }
  return std::make_unique<GatherElements<T, int32_t>>(data, out, axis);
}

std::unique_ptr<Kernel> make_gather_elements(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &data = node.inputs[0], &indices = node.inputs[1], &out = node.outputs[0];
  check_dtype(node, "indices", indices, {DType::kInt32, DType::kInt64});
  check_same_dtype(node, "out", out, "data", data);
  const size_t axis =
      static_cast<size_t>(axis_of(node, node.attributes.integer("axis", 0), data.shape.size()));
  require(indices.shape.size() == data.shape.size(), node, "indices has shape ",
          text_of(indices.shape), ", expected as many dimensions as data, ", text_of(data.shape));
  for (size_t i = 0; i < data.shape.size(); ++i) {
    require(i == axis || indices.shape[i] <= data.shape[i], node, "indices has shape ",
            text_of(indices.shape), ", expected no more than data's ", text_of(data.shape),
            " beside axis ", axis);
  }
  check_shape(node, "out", out, indices.shape, " (as indices)");
  switch (size_of(data.dtype)) {
    case 1:
      return made<uint8_t>(node, axis);
    case 2:
      return made<uint16_t>(node, axis);
    case 4:
      return made<uint32_t>(node, axis);
    default:
      return made<uint64_t>(node, axis);
  }
}

const Registration kGatherElements("GatherElements", make_gather_elements);

}  // namespace
}  // namespace onnx_iron
