// Numpy's broadcasting of up to three operands, as runs along the last dimension.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

template <size_t operands>
class Broadcast {
 public:
  // Shapes that broadcast to `out` (checked before). Neighbouring dimensions along which every
  // operand moves alike become one.
  Broadcast(const Shape& out, const std::array<Shape, operands>& shapes) {
    for (size_t i = 0; i < out.size(); ++i) {
      Dim dim{out[i], {}};
      for (size_t o = 0; o < operands; ++o) {
        const size_t missing = out.size() - shapes[o].size();
        dim.steps[o] = i >= missing && shapes[o][i - missing] != 1;
      }
      if (dim.size == 1) continue;
      if (!dims_.empty() && dims_.back().steps == dim.steps) {
        dims_.back().size *= dim.size;
      } else {
        dims_.push_back(dim);
      }
    }
    if (dims_.empty()) dims_.push_back({1, {}});
    // From "does it move along this dimension" to by how many elements.
    std::array<int64_t, operands> stride;
    stride.fill(1);
    for (size_t i = dims_.size(); i-- > 0;) {
      for (size_t o = 0; o < operands; ++o) {
        const bool moves = dims_[i].steps[o] != 0;
        dims_[i].steps[o] = moves ? stride[o] : 0;
        if (moves) stride[o] *= dims_[i].size;
      }
    }
  }

  // body(offsets, moves, out, n) for pieces that make up elements begin..end-1 of the output:
  // operand o is read from offsets[o] on, the next elements (moves[o]) or the same one.
  template <typename Body>
  void for_runs(int64_t begin, int64_t end, Body&& body) const {
    const Dim& inner = dims_.back();
    std::array<bool, operands> moves;
    for (size_t o = 0; o < operands; ++o) moves[o] = inner.steps[o] != 0;
    while (begin < end) {
      const int64_t within = begin % inner.size;
      std::array<int64_t, operands> offsets{};
      for (size_t o = 0; o < operands; ++o) offsets[o] = within * inner.steps[o];
      int64_t rest = begin / inner.size;
      for (size_t i = dims_.size() - 1; i-- > 0; rest /= dims_[i].size) {
        const int64_t at = rest % dims_[i].size;
        for (size_t o = 0; o < operands; ++o) offsets[o] += at * dims_[i].steps[o];
      }
      const int64_t n = std::min(inner.size - within, end - begin);
      body(offsets, moves, begin, n);
      begin += n;
    }
  }

 private:
  struct Dim {
    int64_t size;
    std::array<int64_t, operands> steps;
  };
  std::vector<Dim> dims_;
};

}  // namespace onnx_iron
