// Pad: entries put before and after, or taken away where their number is negative.
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

constexpr int64_t kFilled = -1;

// The entry of x that an entry of the output is, `at` from x's first on; kFilled for the value.
int64_t source_of(const std::string& mode, int64_t at, int64_t dim) {
  if (at >= 0 && at < dim) return at;
  if (mode == "edge") return at < 0 ? 0 : dim - 1;
  if (mode == "reflect") return at < 0 ? -at : 2 * (dim - 1) - at;
  if (mode == "wrap") return at < 0 ? at + dim : at - dim;
  return kFilled;
}

// T has the elements' size; what they mean does not matter.
template <typename T>
class Pad : public Kernel {
 public:
  Pad(const Node& node, const std::string& mode, const Shape& begins)
      : filled_(node.has_input(1)), width_(node.outputs[0].shape.back()) {
    const Shape &x = node.inputs[0].shape, &out = node.outputs[0].shape;
    rows_ = product(out, 0, out.size() - 1);
    for (size_t axis = 0; axis < x.size(); ++axis) {
      sources_.emplace_back(out[axis]);
      for (int64_t i = 0; i < out[axis]; ++i) {
        sources_.back()[i] = source_of(mode, i - begins[axis], x[axis]);
      }
      strides_.push_back(product(x, axis + 1, x.size()));
    }
  }

  size_t table_bytes() const override {
    size_t bytes = 0;
    for (const Shape& table : sources_) bytes += table.size() * sizeof(int64_t);
    return bytes;
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    const T value = filled_ ? *static_cast<const T*>(buffers.inputs[1]) : T{};
    T* out = static_cast<T*>(buffers.outputs[0]);
    const Shape& inner = sources_.back();
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t from = 0, rest = row;
        bool outside = false;
        for (size_t axis = sources_.size() - 1; axis-- > 0;) {
          const int64_t dim = static_cast<int64_t>(sources_[axis].size());
          const int64_t source = sources_[axis][rest % dim];
          rest /= dim;
          outside = outside || source == kFilled;
          from += source * strides_[axis];
        }
        T* to = out + row * width_;
        for (int64_t i = 0; i < width_; ++i) {
          to[i] = outside || inner[i] == kFilled ? value : x[from + inner[i]];
        }
      }
    });
  }

 private:
  bool filled_;
  int64_t width_, rows_;
  std::vector<Shape> sources_;
  Shape strides_;
};

std::unique_ptr<Kernel> make_pad(const Node& node) {
  check_counts(node, 1, 2);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const std::string mode =
      choice_of(node, "mode", "constant", {"constant", "edge", "reflect", "wrap"});
  require(!x.shape.empty(), node, "x has shape (), expected at least one dimension");
  const Shape begins = node.attributes.integers("begins"), ends = node.attributes.integers("ends");
  require(begins.size() == x.shape.size() && ends.size() == x.shape.size(), node,
          "begins and ends have ", begins.size(), " and ", ends.size(), " entries, expected ",
          x.shape.size(), ", one for each dimension of x");
  Shape expected;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    const int64_t dim = x.shape[i];
    // A table holds it, so a sum that wraps around is out of reach.
    const int64_t most = mode == "constant" ? int64_t{1} << 31
                         : mode == "edge"   ? (dim > 0 ? int64_t{1} << 31 : 0)
                         : mode == "wrap"   ? dim
                                            : std::max<int64_t>(dim - 1, 0);
    const int64_t least = mode == "constant" ? -dim : 0;
    for (const int64_t count : {begins[i], ends[i]}) {
      require(least <= count && count <= most, node, "axis ", i, " is padded by ", count,
              ", expected ", least, "..", most, " (mode ", mode, " of x, ", text_of(x.shape), ")");
    }
    require(dim + begins[i] + ends[i] >= 0, node, "axis ", i, " of x, ", text_of(x.shape),
            ", loses ", -(begins[i] + ends[i]), " entries, expected ", dim, " at most");
    expected.push_back(dim + begins[i] + ends[i]);
  }
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, expected, " (x padded)");
  if (node.has_input(1)) {
    check_same_dtype(node, "value", node.inputs[1], "x", x);
    require(element_count(node.inputs[1].shape) == 1, node, "value has shape ",
            text_of(node.inputs[1].shape), ", expected one element");
  }
  switch (size_of(x.dtype)) {
    case 1:
      return std::make_unique<Pad<uint8_t>>(node, mode, begins);
    case 2:
      return std::make_unique<Pad<uint16_t>>(node, mode, begins);
    case 4:
      return std::make_unique<Pad<uint32_t>>(node, mode, begins);
    default:
      return std::make_unique<Pad<uint64_t>>(node, mode, begins);
  }
}

const Registration kPad("Pad", make_pad);

}  // namespace
}  // namespace onnx_iron
