// Elements moved and not changed: Transpose, Concat, Slice.
#include <cstring>
#include <numeric>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// out[i, j, ...] = x[first + i * steps[0] + j * steps[1] + ...], in elements: Transpose and Slice.
class Strided : public Kernel {
 public:
  Strided(const Shape& out, const Shape& steps, int64_t first, DType dtype)
      : size_(size_of(dtype)), first_(first), count_(element_count(out)) {
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] == 1) continue;
      // A dimension that continues the one before it is one with it.
      if (!dims_.empty() && dims_.back().step == steps[i] * out[i]) {
        dims_.back() = {dims_.back().size * out[i], steps[i]};
      } else {
        dims_.push_back({out[i], steps[i]});
      }
    }
    if (dims_.empty()) dims_.push_back({1, 1});
    // What moves as whole runs is copied as such; the runs are elements then.
    run_ = dims_.back().step == 1 ? dims_.back().size : 1;
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    switch (size_) {
      case 1:
        return move<uint8_t>(buffers, threads);
      case 2:
        return move<uint16_t>(buffers, threads);
      case 4:
        return move<uint32_t>(buffers, threads);
      default:
        return move<uint64_t>(buffers, threads);
    }
  }

 private:
  struct Dim {
    int64_t size, step;
  };

  template <typename T>
  void move(const Buffers& buffers, Threads& threads) const {
    const T* x = static_cast<const T*>(buffers.inputs[0]) + first_;
    T* out = static_cast<T*>(buffers.outputs[0]);
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      const Dim& inner = dims_.back();
      while (begin < end) {
        const int64_t within = begin % inner.size;
        int64_t from = within * inner.step, rest = begin / inner.size;
        for (size_t i = dims_.size() - 1; i-- > 0; rest /= dims_[i].size) {
          from += rest % dims_[i].size * dims_[i].step;
        }
        const int64_t n = std::min(inner.size - within, end - begin);
        if (run_ > 1) {
          std::memcpy(out + begin, x + from, n * sizeof(T));
        } else {
          for (int64_t i = 0; i < n; ++i) out[begin + i] = x[from + i * inner.step];
        }
        begin += n;
      }
    });
  }

  int64_t size_, first_, count_, run_;
  std::vector<Dim> dims_;
};

class Concat : public Kernel {
 public:
  Concat(const Node& node, int64_t axis) : outer_(product(node.outputs[0].shape, 0, axis)) {
    for (const Operand& input : node.inputs) {
      bytes_.push_back(product(input.shape, axis, input.shape.size()) * size_of(input.dtype));
    }
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t row = std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, outer_, row, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        char* to = out + o * row;
        for (size_t i = 0; i < bytes_.size(); to += bytes_[i], ++i) {
          if (bytes_[i] == 0) continue;
          std::memcpy(to, static_cast<const char*>(buffers.inputs[i]) + o * bytes_[i], bytes_[i]);
        }
      }
    });
  }

 private:
  int64_t outer_;
  std::vector<int64_t> bytes_;  // of each input, for each outer index
};

// Elements from an entry to the next, for each dimension.
Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::unique_ptr<Kernel> make_transpose(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const size_t rank = x.shape.size();
  Shape reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const Shape perm = node.attributes.integers("perm", reversed);
  Shape sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  require(sorted == Shape(reversed.rbegin(), reversed.rend()), node, "perm is ", text_of(perm),
          ", expected a permutation of the axes of x, ", text_of(x.shape));
  const Shape strides = strides_of(x.shape);
  Shape expected(rank), steps(rank);
  for (size_t i = 0; i < rank; ++i) {
    expected[i] = x.shape[perm[i]];
    steps[i] = strides[perm[i]];
  }
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, expected, text(" (perm is ", text_of(perm), ")"));
  return std::make_unique<Strided>(expected, steps, 0, x.dtype);
}

std::unique_ptr<Kernel> make_slice(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const Shape starts = node.attributes.integers("starts");
  Shape all(starts.size());
  std::iota(all.begin(), all.end(), 0);
  const Shape axes = node.attributes.integers("axes", all);
  const Shape jumps = node.attributes.integers("steps", Shape(starts.size(), 1));
  require(axes.size() == starts.size() && jumps.size() == starts.size(), node,
          "starts, axes and steps have ", starts.size(), ", ", axes.size(), " and ", jumps.size(),
          " entries, expected as many of each");
  check_same_dtype(node, "out", out, "x", x);
  require(out.shape.size() == x.shape.size(), node, "out has shape ", text_of(out.shape),
          ", expected as many dimensions as x, ", text_of(x.shape));
  Shape steps = strides_of(x.shape), expected = x.shape;
  int64_t first = 0;
  std::vector<bool> seen(x.shape.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axis_of(node, axes[i], x.shape.size());
    require(!seen[axis], node, "axes is ", text_of(axes), ", expected every axis once");
    seen[axis] = true;
    const int64_t dim = x.shape[axis], length = out.shape[axis], step = jumps[i];
    const int64_t start = starts[i] < 0 ? starts[i] + dim : starts[i];
    require(step != 0, node, "steps[", i, "] is 0, expected another number");
    expected[axis] = length;
    if (length == 0) continue;
    // The last entry is not computed before it is known to fit.
    const int64_t room = start < 0 || start >= dim ? -1
                         : step > 0                ? (dim - 1 - start) / step
                                                   : start / -std::max<int64_t>(step, -dim);
    require(room >= length - 1, node, "starts[", i, "] is ", starts[i], " and steps[", i, "] ",
            step, ", expected ", length, " entries (out's) within axis ", axis, " of x, ",
            text_of(x.shape));
    first += start * steps[axis];
    steps[axis] *= length == 1 ? 1 : step;
  }
  check_shape(node, "out", out, expected, " (x but for the axes)");
  return std::make_unique<Strided>(out.shape, steps, first, x.dtype);
}

std::unique_ptr<Kernel> make_concat(const Node& node) {
  require(!node.inputs.empty(), node, "it has 0 inputs, expected at least 1");
  check_counts(node, node.inputs.size(), node.inputs.size());
  const Operand &first = node.inputs[0], &out = node.outputs[0];
  const int64_t axis = axis_of(node, node.attributes.integer("axis"), first.shape.size());
  Shape expected = first.shape;
  expected[axis] = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Operand& input = node.inputs[i];
    const std::string name = text("input ", i);
    check_same_dtype(node, name.c_str(), input, "input 0", first);
    Shape like = first.shape;
    if (input.shape.size() == like.size()) like[axis] = input.shape[axis];
    check_shape(node, name.c_str(), input, like, text(" (as input 0 but for axis ", axis, ")"));
    expected[axis] += input.shape[axis];
  }
  check_same_dtype(node, "out", out, "input 0", first);
  check_shape(node, "out", out, expected, text(" (axis is ", axis, ")"));
  return std::make_unique<Concat>(node, axis);
}

const Registration kTranspose("Transpose", make_transpose);
const Registration kConcat("Concat", make_concat);
const Registration kSlice("Slice", make_slice);

}  // namespace
}  // namespace onnx_iron
