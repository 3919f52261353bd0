// The filter of CausalConv1d over a block of rows and channels.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/exponentials.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Rows of y that share a load of the taps.
constexpr int kRows = 4;

// Rows of y at `to`, their windows where source(r, k) says.
template <int rows, bool with_silu, typename T, typename Source>
ONNX_IRON_INLINE void filter(const ConvShape& shape, const T* taps, const T* bias, T* to,
                             int64_t first, int64_t last, Source&& source) {
  for_wides(last - first, [&](int64_t i, auto load, auto store) {
    const int64_t c = first + i;
    Wide sums[rows];
    const Wide start = load(taps + c);
    for (int r = 0; r < rows; ++r) sums[r] = mul(start, load(source(r, 0) + c));
    for (int64_t k = 1; k < shape.taps; ++k) {
      const Wide tap = load(taps + k * shape.channels + c);
      for (int r = 0; r < rows; ++r) sums[r] = add(sums[r], mul(tap, load(source(r, k) + c)));
    }
    if (bias != nullptr) {
      const Wide more = load(bias + c);
      for (int r = 0; r < rows; ++r) sums[r] = add(sums[r], more);
    }
    for (int r = 0; r < rows; ++r) {
      if constexpr (with_silu) sums[r] = silu(sums[r]);
      store(to + r * shape.channels + c, sums[r]);
    }
  });
}

template <bool with_silu, typename T>
void filter_rows(const ConvShape& shape, const T* x, const T* taps, const T* state, const T* bias,
                 T* y, int64_t begin, int64_t end, int64_t first, int64_t last) {
  const int64_t channels = shape.channels, apart = shape.dilation;
  const int64_t before = (shape.taps - 1) * apart;
  int64_t t = begin;
  // Windows that begin in the state.
  for (; t < end && t < before; ++t) {
    filter<1, with_silu>(shape, taps, bias, y + t * channels, first, last, [&](int, int64_t k) {
      const int64_t row = t + k * apart;
      return row < before ? state + row * channels : x + (row - before) * channels;
    });
  }
  const auto inside = [&](int r, int64_t k) { return x + (t - before + r + k * apart) * channels; };
  for (; t + kRows <= end; t += kRows) {
    filter<kRows, with_silu>(shape, taps, bias, y + t * channels, first, last, inside);
  }
  for (; t < end; ++t) {
    filter<1, with_silu>(shape, taps, bias, y + t * channels, first, last, inside);
  }
}

}  // namespace

template <typename T>
void causal_conv1d(const ConvShape& shape, const void* x, const void* taps, const void* state,
                   const void* bias, void* y, int64_t begin, int64_t end, int64_t first,
                   int64_t last) {
  const auto run = shape.silu ? filter_rows<true, T> : filter_rows<false, T>;
  run(shape, static_cast<const T*>(x), static_cast<const T*>(taps), static_cast<const T*>(state),
      static_cast<const T*>(bias), static_cast<T*>(y), begin, end, first, last);
}

template void causal_conv1d<float>(const ConvShape&, const void*, const void*, const void*,
                                   const void*, void*, int64_t, int64_t, int64_t, int64_t);
template void causal_conv1d<bf16>(const ConvShape&, const void*, const void*, const void*,
                                  const void*, void*, int64_t, int64_t, int64_t, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
