// Softmax of rows, and its logarithm.
#include <cmath>

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

namespace {

// A NaN is left out, but not where the row begins with one.
template <typename T>
ONNX_IRON_INLINE float row_max(const T* x, int64_t width) {
  const Wide first = all<Wide>(widen_one(*x));
  Wide most[4] = {first, first, first, first};
  int64_t i = 0;
  for (; i + 4 * kWide <= width; i += 4 * kWide) {
    for (int part = 0; part < 4; ++part) {
      most[part] = larger(wide_at(x + i + part * kWide), most[part]);
    }
  }
  for (; i + kWide <= width; i += kWide) most[0] = larger(wide_at(x + i), most[0]);
  most[0] = larger(larger(most[0], most[1]), larger(most[2], most[3]));
  float lanes[kWide];
  keep(lanes, most[0]);
  float result = lanes[0];
  for (int lane = 1; lane < kWide; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  for (; i < width; ++i) {
    const float rest = widen_one(x[i]);
    result = rest > result ? rest : result;
  }
  return result;
}

}  // namespace

template <typename T>
void softmax(const void* x, void* out, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const Wide most = all<Wide>(row_max(from, width));
    const auto weight = [&](int64_t i, auto load) __attribute__((always_inline)) {
      return fast_exp(sub(load(from + i), most));
    };
    if constexpr (sizeof(T) == sizeof(float)) {
      const Wide total = all<Wide>(wide_row_sum(width, [&](int64_t i, auto load, auto store) {
        const Wide kept = weight(i, load);
        store(to + i, kept);
        return kept;
      }));
      for_wides(width,
                [&](int64_t i, auto load, auto store) { store(to + i, div(load(to + i), total)); });
    } else {
      // Exponentials are computed twice, which needs no float32 row to keep them in.
      const Wide total = all<Wide>(
          wide_row_sum(width, [&](int64_t i, auto load, auto) { return weight(i, load); }));
      for_wides(width, [&](int64_t i, auto load, auto store) {
        store(to + i, div(weight(i, load), total));
      });
    }
  }
}

// The sum of the exponentials in double, for it may be hardly more than 1.
template <typename T>
void log_softmax(const void* x, void* out, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const float most = row_max(from, width);
    const F8 offset = splat(most);
    D8 sum = splat_double(0.0), more = splat_double(0.0);
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) {
      sum = add(sum, to_double(fast_exp(sub(load(from + i), offset))));
      more = add(more, to_double(fast_exp(sub(load(from + i + 8), offset))));
    }
    for_eights(width - i, [&](int64_t j, auto load, auto) {
      const F8 weights = fast_exp(sub(load(from + i + j), offset));
      sum = add(sum, to_double(keep_below(weights, width - i - j)));
    });
    double lanes[8], total = 0;
    store(lanes, add(sum, more));
    for (const double lane : lanes) total += lane;
    const D8 shift = splat_double(static_cast<double>(most) + std::log(total));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      store(to + i, to_float(sub(to_double(load(from + i)), shift)));
    });
  }
}

template void log_softmax<float>(const void*, void*, int64_t, int64_t);
template void log_softmax<bf16>(const void*, void*, int64_t, int64_t);
template void softmax<float>(const void*, void*, int64_t, int64_t);
template void softmax<bf16>(const void*, void*, int64_t, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
