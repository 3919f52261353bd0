// What goes over whole rows: norms, softmax, sums. Every row's sum has 32 lanes, element i in lane
// i % 32, and one order in which the lanes are added.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/functions.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// term(i, load) gives the eight terms from element i on, zeros past the end.
template <typename Term>
ONNX_IRON_INLINE float row_sum(int64_t width, Term&& term) {
  F8 lanes[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  const auto whole = [](const auto* p) { return load(p); };
  for (; i + 32 <= width; i += 32) {
    for (int part = 0; part < 4; ++part) {
      lanes[part] = add(lanes[part], term(i + 8 * part, whole));
    }
  }
  for (int part = 0; i < width; i += 8, ++part) {
    const int64_t rest = width - i;
    const auto masked = [rest](const auto* p) { return load_part(p, rest); };
    lanes[part] = add(lanes[part], keep_below(term(i, masked), rest));
  }
  return sum(add(add(lanes[0], lanes[1]), add(lanes[2], lanes[3])));
}

template <typename T>
ONNX_IRON_INLINE float row_max(const T* x, int64_t width) {
  F8 most = splat(widen_one(*x));
  int64_t i = 0;
  for (; i + 8 <= width; i += 8) most = larger(most, load(x + i));
  float lanes[8];
  store(lanes, most);
  float result = lanes[0];
  for (int lane = 1; lane < 8; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  for (; i < width; ++i) {
    const float rest = widen_one(x[i]);
    result = rest > result ? rest : result;
  }
  return result;
}

}  // namespace

template <typename T>
void rms_norm(const void* x, const void* weight, void* out, int64_t rows, int64_t width,
              float epsilon) {
  const T* w = static_cast<const T*>(weight);
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const float squares = row_sum(width, [&](int64_t i, auto load) {
      const F8 part = load(from + i);
      return mul(part, part);
    });
    const float mean = squares / static_cast<float>(width);
    const F8 factor = splat(1.0f / __builtin_sqrtf(mean + epsilon));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      F8 normed = mul(load(from + i), factor);
      if (w == nullptr) return store(to + i, normed);
      // The norm is rounded before it meets the weight.
      if constexpr (sizeof(T) == 2) normed = round_to_bf16(normed);
      store(to + i, mul(normed, load(w + i)));
    });
  }
}

template <typename T>
void layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t rows,
                int64_t width, float epsilon) {
  const T* w = static_cast<const T*>(weight);
  const T* b = static_cast<const T*>(bias);
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const float total = row_sum(width, [&](int64_t i, auto load) { return load(from + i); });
    const F8 mean = splat(total / static_cast<float>(width));
    const float squares = row_sum(width, [&](int64_t i, auto load) {
      const F8 part = sub(load(from + i), mean);
      return mul(part, part);
    });
    const float variance = squares / static_cast<float>(width);
    const F8 factor = splat(1.0f / __builtin_sqrtf(variance + epsilon));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      F8 normed = mul(sub(load(from + i), mean), factor);
      if (w != nullptr) normed = mul(normed, load(w + i));
      if (b != nullptr) normed = add(normed, load(b + i));
      store(to + i, normed);
    });
  }
}

template <typename T>
void softmax(const void* x, void* out, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    T* to = static_cast<T*>(out) + row * width;
    const F8 most = splat(row_max(from, width));
    // Exponentials are computed twice, which needs no float32 row to keep them in.
    const F8 total = splat(
        row_sum(width, [&](int64_t i, auto load) { return fast_exp(sub(load(from + i), most)); }));
    for_eights(width, [&](int64_t i, auto load, auto store) {
      store(to + i, div(fast_exp(sub(load(from + i), most)), total));
    });
  }
}

template <typename T>
void reduce(const void* x, void* out, int64_t rows, int64_t width, bool mean) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = static_cast<const T*>(x) + row * width;
    const float total = row_sum(width, [&](int64_t i, auto load) { return load(from + i); });
    static_cast<T*>(out)[row] = narrow_one<T>(mean ? total / static_cast<float>(width) : total);
  }
}

template void rms_norm<float>(const void*, const void*, void*, int64_t, int64_t, float);
template void rms_norm<bf16>(const void*, const void*, void*, int64_t, int64_t, float);
template void layer_norm<float>(const void*, const void*, const void*, void*, int64_t, int64_t,
                                float);
template void layer_norm<bf16>(const void*, const void*, const void*, void*, int64_t, int64_t,
                               float);
template void softmax<float>(const void*, void*, int64_t, int64_t);
template void softmax<bf16>(const void*, void*, int64_t, int64_t);
template void reduce<float>(const void*, void*, int64_t, int64_t, bool);
template void reduce<bf16>(const void*, void*, int64_t, int64_t, bool);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
