// GatherND: rows of numbers are places in data, each taken with all that is below it.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

class GatherND : public Kernel {
 public:
  GatherND(const Shape& data, const Shape& indices, size_t batch, size_t size)
      : depth_(indices.back()),
        batches_(product(indices, 0, batch)),
        each_(product(indices, batch, indices.size() - 1)),
        dims_(data.begin() + batch, data.begin() + batch + indices.back()),
        bytes_(product(data, batch + indices.back(), data.size()) * static_cast<int64_t>(size)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const char* data = static_cast<const char*>(buffers.inputs[0]);
    const int64_t* indices = static_cast<const int64_t*>(buffers.inputs[1]);
    for (int64_t i = 0; i < batches_ * each_ * depth_; ++i) {
      const int64_t dim = dims_[i % depth_];
      if (indices[i] >= -dim && indices[i] < dim) continue;
      throw std::invalid_argument(text("GatherND: indices has ", indices[i], " for a dimension of ",
                                       dim, ", expected ", -dim, "..", dim - 1));
    }
    char* out = static_cast<char*>(buffers.outputs[0]);
    const int64_t whole = product(dims_, 0, dims_.size());
    parallel_rows(threads, batches_ * each_, bytes_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t place = 0;
        for (int64_t i = 0; i < depth_; ++i) {
          const int64_t index = indices[row * depth_ + i];
          place = place * dims_[i] + (index < 0 ? index + dims_[i] : index);
        }
        std::memcpy(out + row * bytes_, data + (row / each_ * whole + place) * bytes_, bytes_);
      }
    });
  }

 private:
  int64_t depth_, batches_, each_;
  Shape dims_;
  int64_t bytes_;
};

std::unique_ptr<Kernel> make_gather_nd(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &data = node.inputs[0], &indices = node.inputs[1], &out = node.outputs[0];
  check_dtype(node, "indices", indices, {DType::kInt64});
  check_same_dtype(node, "out", out, "data", data);
  require(!data.shape.empty() && !indices.shape.empty(), node, "data has shape ",
          text_of(data.shape), " and indices ", text_of(indices.shape), ", expected dimensions");
  const int64_t batch = node.attributes.integer("batch_dims", 0), depth = indices.shape.back();
  const int64_t rank = static_cast<int64_t>(data.shape.size());
  require(batch >= 0 && batch < std::min<int64_t>(rank, indices.shape.size()), node,
          "batch_dims is ", batch, ", expected less than the dimensions of data and indices");
  require(depth >= 1 && depth <= rank - batch, node, "indices has shape ", text_of(indices.shape),
          ", expected 1..", rank - batch, " numbers a place in data, ", text_of(data.shape));
  for (int64_t i = 0; i < batch; ++i) {
    require(data.shape[i] == indices.shape[i], node, "data has shape ", text_of(data.shape),
            " and indices ", text_of(indices.shape), ", expected the same ", batch, " first ones");
  }
  Shape expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.insert(expected.end(), data.shape.begin() + batch + depth, data.shape.end());
  check_shape(node, "out", out, expected, " (indices, then data below a place)");
  return std::make_unique<GatherND>(data.shape, indices.shape, static_cast<size_t>(batch),
                                    size_of(data.dtype));
}

const Registration kGatherND("GatherND", make_gather_nd);

}  // namespace
}  // namespace onnx_iron
