// CachePlaces: where GroupQueryAttention's new rows go in each sequence's cache, and how many of
// its entries are there then.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"

namespace onnx_iron {
namespace {

// From the lengths less one (B,) and the longest: the first new row's entry and the length (B,),
// and each row's position (B, rows), which a row past the length has not: it is 1 there.
class CachePlaces : public Kernel {
 public:
  explicit CachePlaces(const Node& node)
      : batch_(node.inputs[0].shape[0]),
        rows_(node.attributes.integer("rows")),
        past_(node.attributes.integer("past")),
        entries_(node.attributes.integer("entries")) {}

  void run(const Buffers& buffers, Threads&) const override {
    const int32_t* last = static_cast<const int32_t*>(buffers.inputs[0]);
    const int64_t longest = *static_cast<const int32_t*>(buffers.inputs[1]);
    const bool grows = entries_ > past_;
    if (longest < rows_ || longest > entries_ || (grows && longest != entries_)) {
      throw std::invalid_argument(text("GroupQueryAttention: total_sequence_length is ", longest,
                                       ", expected ", grows ? entries_ : rows_,
                                       grows ? "" : text("..", entries_), " (", rows_,
                                       " new entries, a past of ", past_, ")"));
    }
    const bool prompt = longest == rows_;
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t least = prompt ? 0 : rows_ - 1;
      if (last[b] < least || last[b] >= entries_) {
        throw std::invalid_argument(text("GroupQueryAttention: seqlens_k ", b, " is ", last[b],
                                         ", expected ", least, "..", entries_ - 1));
      }
    }
    int32_t* starts = static_cast<int32_t*>(buffers.outputs[0]);
    int32_t* lengths = static_cast<int32_t*>(buffers.outputs[1]);
    int64_t* positions = static_cast<int64_t*>(buffers.outputs[2]);
    for (int64_t b = 0; b < batch_; ++b) {
      lengths[b] = last[b] + 1;
      starts[b] = prompt ? 0 : static_cast<int32_t>(lengths[b] - rows_);
      for (int64_t row = 0; row < rows_; ++row) {
        const int64_t at = starts[b] + row;
        positions[b * rows_ + row] = at < lengths[b] ? at : 1;
      }
    }
  }

 private:
  int64_t batch_, rows_, past_, entries_;
};

std::unique_ptr<Kernel> make_cache_places(const Node& node) {
  check_counts(node, 2, 2, 3);
  const Operand& last = node.inputs[0];
  check_dtype(node, "seqlens_k", last, {DType::kInt32});
  require(last.shape.size() == 1, node, "seqlens_k has shape ", text_of(last.shape),
          ", expected (B,)");
  check_scalar(node, "total_sequence_length", node.inputs[1]);
  const int64_t rows = node.attributes.integer("rows");
  require(rows >= 0, node, "rows is ", rows);
  for (size_t i = 0; i < 2; ++i) {
    check_dtype(node, "places", node.outputs[i], {DType::kInt32});
    check_shape(node, "places", node.outputs[i], last.shape);
  }
  check_dtype(node, "positions", node.outputs[2], {DType::kInt64});
  check_shape(node, "positions", node.outputs[2], {last.shape[0], rows});
  return std::make_unique<CachePlaces>(node);
}

const Registration kCachePlaces("CachePlaces", make_cache_places);

}  // namespace
}  // namespace onnx_iron
