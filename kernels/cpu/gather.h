// Entries taken by number, as Embedding and Gather do.
#pragma once

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

// out[o, i, :] = data[o, indices[i], :].
class TakeEntries : public Kernel {
 public:
  // from_back: negative indices count from the end. `name` is what errors call the indices.
  TakeEntries(const Node& node, int64_t axis, const char* name, bool from_back)
      : op_(node.op),
        name_(name),
        from_back_(from_back),
        wide_(node.inputs[1].dtype == DType::kInt64),
        outer_(product(node.inputs[0].shape, 0, axis)),
        entries_(node.inputs[0].shape[axis]),
        count_(element_count(node.inputs[1].shape)),
        bytes_(product(node.inputs[0].shape, axis + 1, node.inputs[0].shape.size()) *
               size_of(node.inputs[0].dtype)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const void* indices = buffers.inputs[1];
    const int64_t least = from_back_ ? -entries_ : 0;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t index = index_at(indices, i);
      if (index >= least && index < entries_) continue;
      throw std::invalid_argument(
          text(op_, ": ", name_, "[", i, "] is ", index, ", expected ", least, "..", entries_ - 1));
    }
    const char* data = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, outer_ * count_, bytes_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t index = index_at(indices, row % count_);
        const int64_t entry = index < 0 ? index + entries_ : index;
        copy_some(out + row * bytes_, data + (row / count_ * entries_ + entry) * bytes_, bytes_);
      }
    });
  }

 private:
  int64_t index_at(const void* indices, int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(indices)[i]
                 : static_cast<const int32_t*>(indices)[i];
  }

  std::string op_, name_;
  bool from_back_, wide_;
  int64_t outer_, entries_, count_, bytes_;
};

// The indices' dimensions in place of the axis.
inline Shape gathered_shape(const Node& node, int64_t axis) {
  const Shape &data = node.inputs[0].shape, &indices = node.inputs[1].shape;
  Shape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  return shape;
}

inline std::unique_ptr<Kernel> make_gather(const Node& node, const char* data_name,
                                           const char* name, int64_t axis, bool from_back) {
  const Operand &data = node.inputs[0], &indices = node.inputs[1], &out = node.outputs[0];
  check_dtype(node, name, indices, {DType::kInt32, DType::kInt64});
  check_same_dtype(node, "out", out, data_name, data);
  check_shape(node, "out", out, gathered_shape(node, axis),
              text(" (", name, " in place of axis ", axis, ")"));
  return std::make_unique<TakeEntries>(node, axis, name, from_back);
}

}  // namespace onnx_iron
