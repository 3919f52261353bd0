// GatherBlockQuantized of com.microsoft: rows of a matrix in codes, by number.
#include "kernels/cpu/codes.h"
#include "kernels/cpu/gather.h"

namespace onnx_iron {
namespace {

class CodedRows : public Kernel {
 public:
  CodedRows(const Node& node, const CodedWeight& weight, int64_t width)
      : weight_(weight),
        loops_(loops().of(node.outputs[0].dtype)),
        size_(size_of(node.outputs[0].dtype)),
        wide_(node.inputs[1].dtype == DType::kInt64),
        rows_(node.inputs[0].shape[0]),
        count_(element_count(node.inputs[1].shape)),
        width_(width) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const void* indices = buffers.inputs[1];
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t index = index_at(indices, i);
      if (index >= -rows_ && index < rows_) continue;
      throw std::invalid_argument(text("GatherBlockQuantized: indices[", i, "] is ", index,
                                       ", expected ", -rows_, "..", rows_ - 1));
    }
    const Codes codes = weight_.at(buffers);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, count_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = index_at(indices, i);
        loops_.decode(codes, index < 0 ? index + rows_ : index, width_, out + i * width_ * size_);
      }
    });
  }

 private:
  int64_t index_at(const void* indices, int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(indices)[i]
                 : static_cast<const int32_t*>(indices)[i];
  }

  CodedWeight weight_;
  const TypedLoops& loops_;
  int64_t size_;
  bool wide_;
  int64_t rows_, count_, width_;
};

std::unique_ptr<Kernel> make_gather_block_quantized(const Node& node) {
  check_counts(node, 3, 4);
  const Operand &data = node.inputs[0], &indices = node.inputs[1], &out = node.outputs[0];
  check_dtype(node, "indices", indices, {DType::kInt32, DType::kInt64});
  check_real(node, "out", out);
  require(data.shape.size() == 2, node, "data has shape ", text_of(data.shape),
          ", expected (V, bytes of a row)");
  const int64_t bits = node.attributes.integer("bits", 4);
  require(bits == 4 || bits == 8, node, "bits is ", bits, ", expected 4 or 8");
  const int64_t width = data.shape[1] * (8 / bits);
  const CodedWeight weight(node, 0, 3, out.dtype, data.shape[0], width);
  // A row's last block may be cut, and then the rows have no common stride of blocks.
  require(width % weight.block() == 0, node, "data has rows of ", width,
          " elements, expected a multiple of block_size, ", weight.block());
  Shape expected = indices.shape;
  expected.push_back(width);
  check_shape(node, "out", out, expected, " (a row for each index)");
  return std::make_unique<CodedRows>(node, weight, width);
}

const Registration kGatherBlockQuantized("GatherBlockQuantized", make_gather_block_quantized);

}  // namespace
}  // namespace onnx_iron
