// Unfold: the windows of a convolution as columns, so that it is a product of matrices.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

struct Axis {
  int64_t dim, windows, kernel, stride, dilation, before;
};

// out[b, c * K + k, w] = x[b, c, where window w has its element k], zero outside. An x with one
// spatial dimension has a further one of 1 in front of it.
template <typename T>
class Unfold : public Kernel {
 public:
  Unfold(int64_t planes, const Axis& high, const Axis& wide)
      : high_(high), wide_(wide), rows_(planes * high.kernel * wide.kernel * high.windows) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const T* x = static_cast<const T*>(buffers.inputs[0]);
    T* out = static_cast<T*>(buffers.outputs[0]);
    // A row: of a plane, an element of the kernel and a row of windows.
    parallel_rows(threads, rows_, wide_.windows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t window = row % high_.windows;
        int64_t rest = row / high_.windows;
        const int64_t right = rest % wide_.kernel;
        rest /= wide_.kernel;
        const int64_t down = rest % high_.kernel, plane = rest / high_.kernel;
        T* to = out + row * wide_.windows;
        const int64_t y = window * high_.stride + down * high_.dilation - high_.before;
        if (y < 0 || y >= high_.dim) {
          std::fill(to, to + wide_.windows, T{});
          continue;
        }
        copy(x + (plane * high_.dim + y) * wide_.dim, right * wide_.dilation - wide_.before, to);
      }
    });
  }

 private:
  void copy(const T* from, int64_t at, T* to) const {
    const int64_t stride = wide_.stride, windows = wide_.windows;
    // Windows first..last-1 are inside.
    const int64_t first = std::min(windows, at < 0 ? (-at + stride - 1) / stride : 0);
    const int64_t last =
        std::clamp(at >= wide_.dim ? 0 : (wide_.dim - 1 - at) / stride + 1, first, windows);
    std::fill(to, to + first, T{});
    if (stride == 1) {
      if (last > first) std::memcpy(to + first, from + at + first, (last - first) * sizeof(T));
    } else {
      for (int64_t i = first; i < last; ++i) to[i] = from[at + i * stride];
    }
    std::fill(to + last, to + windows, T{});
  }

  Axis high_, wide_;
  int64_t rows_;
};

std::unique_ptr<Kernel> make_unfold(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  check_real(node, "x", x);
  const size_t spatial = x.shape.size() - std::min<size_t>(x.shape.size(), 2);
  require(spatial == 1 || spatial == 2, node, "x has shape ", text_of(x.shape),
          ", expected (B, C, L) or (B, C, H, W)");
  const Shape kernel = node.attributes.integers("kernel"),
              strides = node.attributes.integers("strides"),
              dilations = node.attributes.integers("dilations"),
              begins = node.attributes.integers("begins"), ends = node.attributes.integers("ends");
  std::vector<Axis> axes = {{1, 1, 1, 1, 1, 0}};
  int64_t elements = 1, windows = 1;
  for (size_t i = 0; i < spatial; ++i) {
    for (const Shape* list : {&kernel, &strides, &dilations, &begins, &ends}) {
      require(list->size() == spatial, node, "an attribute has ", list->size(),
              " entries, expected ", spatial, ", one for each spatial dimension of x");
      const int64_t least = list == &begins || list == &ends ? 0 : 1;
      require((*list)[i] >= least && (*list)[i] < (int64_t{1} << 31), node, "an attribute has ",
              (*list)[i], " for axis ", i, ", expected ", least, " or more");
    }
    const int64_t dim = x.shape[2 + i], span = (kernel[i] - 1) * dilations[i] + 1;
    const int64_t room = dim + begins[i] + ends[i] - span;
    require(room >= 0, node, "a window of ", span, " entries does not fit into axis ", 2 + i,
            " of x, ", text_of(x.shape), ", with ", begins[i], " and ", ends[i],
            " before and after");
    axes.push_back({dim, room / strides[i] + 1, kernel[i], strides[i], dilations[i], begins[i]});
    elements *= kernel[i];
    windows *= axes.back().windows;
  }
  check_same_dtype(node, "out", out, "x", x);
  check_shape(node, "out", out, {x.shape[0], x.shape[1] * elements, windows}, " (windows of x)");
  const Axis high = axes[axes.size() - 2], wide = axes.back();
  const int64_t planes = x.shape[0] * x.shape[1];
  if (x.dtype == DType::kFloat32) return std::make_unique<Unfold<float>>(planes, high, wide);
  return std::make_unique<Unfold<uint16_t>>(planes, high, wide);
}

const Registration kUnfold("Unfold", make_unfold);

}  // namespace
}  // namespace onnx_iron
