// Elements moved by strides, as Transpose and Slice do.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

// out[i, j, ...] = x[first + i * steps[0] + j * steps[1] + ...], in elements.
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

// Elements from an entry to the next, for each dimension.
inline Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace onnx_iron
