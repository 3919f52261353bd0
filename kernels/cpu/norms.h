// What RMSNorm and LayerNorm share, under their own and the standard names.
#pragma once

#include <string>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

// Inputs x, weight and bias; x is normalized from `axis` on, one row for each entry before it.
class Norm : public Kernel {
 public:
  Norm(const Node& node, int64_t axis)
      : loops_(loops().of(node.inputs[0].dtype)),
        epsilon_(node.attributes.real("epsilon", 1e-5f)),
        size_(size_of(node.inputs[0].dtype)),
        normalized_(node.inputs[0].shape.begin() + axis, node.inputs[0].shape.end()),
        width_(element_count(normalized_)),
        rows_(width_ == 0 ? 0 : product(node.inputs[0].shape, 0, axis)) {
    for (size_t index : {1, 2}) {
      if (!node.has_input(index)) continue;
      Shape shape = node.inputs[index].shape;
      while (shape.size() > normalized_.size()) shape.erase(shape.begin());
      factors_[index] = {.present = true, .whole = shape == normalized_, .shape = shape};
    }
  }

  // For operands that are broadcast, as they are on a whole row.
  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (const Factor& factor : factors_) bytes += factor.in_scratch() ? width_ * size_ : 0;
    return bytes;
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    char* scratch = static_cast<char*>(buffers.scratch);
    const void* weight = on_a_row(buffers, 1, scratch);
    const void* bias = on_a_row(buffers, 2, scratch);
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    parallel_rows(threads, rows_, width_, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width_ * size_;
      run_rows(x + at, weight, bias, out + at, end - begin, width_);
    });
  }

 protected:
  // weight and bias have `width` elements, or are null.
  virtual void run_rows(const void* x, const void* weight, const void* bias, void* out,
                        int64_t rows, int64_t width) const = 0;

  const TypedLoops& loops_;
  float epsilon_;

 private:
  struct Factor {
    bool present = false, whole = false;
    Shape shape;

    bool in_scratch() const { return present && !whole; }
  };

  // Where an operand has `width` elements: its own place, or scratch, which then moves on.
  const void* on_a_row(const Buffers& buffers, size_t index, char*& scratch) const {
    const Factor& factor = factors_[index];
    const void* given = input_or_null(buffers, factor.present, index);
    if (!factor.in_scratch()) return given;
    char* row = scratch;
    scratch += width_ * size_;
    const char* from = static_cast<const char*>(given);
    Broadcast<1>(normalized_, {factor.shape})
        .for_runs(0, width_, [&](const auto& offsets, const auto& moves, int64_t at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            copy_some(row + (at + i) * size_, from + (offsets[0] + (moves[0] ? i : 0)) * size_,
                      size_);
          }
        });
    return row;
  }

  int64_t size_;
  Shape normalized_;
  int64_t width_, rows_;
  Factor factors_[3];  // by input; the first is x
};

inline void check_norm(const Node& node, size_t most) {
  check_counts(node, 1, most);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  require(!x.shape.empty(), node, "x has shape (), expected (..., D)");
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, x.shape, " (as x)");
}

// For ops with one weight at most, for each entry of the last axis. Returns that axis.
inline int64_t check_own_norm(const Node& node) {
  check_norm(node, 2);
  const Operand& x = node.inputs[0];
  if (node.has_input(1)) {
    check_same_dtype(node, "weight", node.inputs[1], "x", x);
    check_shape(node, "weight", node.inputs[1], {x.shape.back()}, " (x's last dimension)");
  }
  return static_cast<int64_t>(x.shape.size()) - 1;
}

// For the standard ops: scale and bias broadcast to x from the attribute axis on. Returns the axis.
inline int64_t check_standard_norm(const Node& node, size_t most) {
  check_inputs(node, 2, most);
  check_norm(node, most);
  const Operand& x = node.inputs[0];
  const int64_t axis = axis_of(node, node.attributes.integer("axis", -1), x.shape.size());
  const Shape normalized(x.shape.begin() + axis, x.shape.end());
  for (size_t index : {1, 2}) {
    if (!node.has_input(index)) continue;
    const char* name = index == 1 ? "scale" : "bias";
    const Operand& factor = node.inputs[index];
    check_same_dtype(node, name, factor, "x", x);
    Shape shape = factor.shape;
    while (shape.size() > normalized.size() && shape.front() == 1) shape.erase(shape.begin());
    bool fits = shape.size() <= normalized.size();
    for (size_t i = 1; fits && i <= shape.size(); ++i) {
      const int64_t dim = shape[shape.size() - i];
      fits = dim == 1 || dim == normalized[normalized.size() - i];
    }
    require(fits, node, name, " has shape ", text_of(factor.shape),
            ", expected one that broadcasts to ", text_of(normalized), " (x from axis ", axis,
            " on)");
  }
  return axis;
}

}  // namespace onnx_iron
