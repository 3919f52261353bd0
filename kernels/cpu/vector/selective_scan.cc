// SelectiveScan over a range of channels, eight at a time: a row's step and drive for the eight in
// one vector each, then eight entries of a channel's state in one.
#include <cstring>

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/exponentials.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

constexpr int kChannels = 8;

// A row's step, of eight channels, and what of x the step takes into the state.
struct Row {
  alignas(32) float step[kChannels];
  alignas(32) float taken[kChannels];
};

// One row of `channels` channels: their states, N apart, decay and take in b; the sums weighted by
// c go to `sums`.
template <int channels, typename T>
ONNX_IRON_INLINE void advance(const Row& row, const float* a, const T* b, const T* c, float* h,
                              int64_t states, float* sums) {
  F8 weighed[channels];
  for (int i = 0; i < channels; ++i) weighed[i] = zero();
  for_eights(states, [&](int64_t n, auto load, auto store) __attribute__((always_inline)) {
    const F8 more = load(b + n), weights = load(c + n);
#pragma GCC unroll 8
    for (int i = 0; i < channels; ++i) {
      const F8 exponent = mul(splat(row.step[i]), load(a + i * states + n));
      const F8 decayed = mul(exp(exponent), load(h + i * states + n));
      const F8 now = add(decayed, mul(splat(row.taken[i]), more));
      store(h + i * states + n, now);
      // Past the last entry an infinite step makes NaN.
      weighed[i] = add(weighed[i], keep_below(mul(now, weights), states - n));
    }
  });
  for (int i = 0; i < channels; ++i) sums[i] = sum(weighed[i]);
}

template <typename T>
void scan_eight(const ScanShape& shape, const ScanOperands& at, int64_t rows, int64_t first,
                int64_t count) {
  const int64_t states = shape.states;
  const float* a = at.a + first * states;
  float* h = at.new_state + first * states;
  if (at.new_state != at.state && states > 0) {
    std::memcpy(h, at.state + first * states, count * states * sizeof(float));
  }
  const F8 bias = at.dt_bias == nullptr ? zero() : load_part(at.dt_bias + first, count);
  const F8 direct = at.d == nullptr ? zero() : load_part(at.d + first, count);
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t place = t * shape.channels + first;
    const T *b = static_cast<const T*>(at.b) + t * states,
            *c = static_cast<const T*>(at.c) + t * states;
    const F8 x = load_part(static_cast<const T*>(at.x) + place, count);
    F8 step = load_part(static_cast<const T*>(at.dt) + place, count);
    if (at.dt_bias != nullptr) step = add(step, bias);
    if (shape.softplus) step = to_float(softplus(to_double(step)));
    Row row;
    store(row.step, step);
    store(row.taken, mul(step, x));
    alignas(32) float sums[kChannels] = {};
    if (count == kChannels) {
      advance<kChannels>(row, a, b, c, h, states, sums);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const Row one = {{row.step[i]}, {row.taken[i]}};
        advance<1>(one, a + i * states, b, c, h + i * states, states, sums + i);
      }
    }
    F8 y = load(sums);
    if (at.d != nullptr) y = add(y, mul(direct, x));
    store_part(static_cast<T*>(at.y) + place, y, count);
  }
}

}  // namespace

template <typename T>
void selective_scan(const ScanShape& shape, const ScanOperands& operands, int64_t rows,
                    int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kChannels) {
    scan_eight<T>(shape, operands, rows, first, end - first < kChannels ? end - first : kChannels);
  }
}

template void selective_scan<float>(const ScanShape&, const ScanOperands&, int64_t, int64_t,
                                    int64_t);
template void selective_scan<bf16>(const ScanShape&, const ScanOperands&, int64_t, int64_t,
                                   int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
