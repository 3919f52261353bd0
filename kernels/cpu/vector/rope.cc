// One row turned by one row of angles.
#include "kernels/cpu/vector/declarations.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// Sixteen neighbours as two vectors; fewer past the end.
template <typename T>
ONNX_IRON_INLINE void load_pairs(const T* p, int64_t pairs, F8* a, F8* b) {
  if (pairs >= 8) return split_pairs(load(p), load(p + 8), a, b);
  const int64_t elements = 2 * pairs;
  split_pairs(load_part(p, elements), elements > 8 ? load_part(p + 8, elements - 8) : zero(), a, b);
}

template <typename T>
ONNX_IRON_INLINE void store_pairs(T* p, F8 a, F8 b, int64_t pairs) {
  F8 x, y;
  join_pairs(a, b, &x, &y);
  if (pairs >= 8) {
    store(p, x);
    return store(p + 8, y);
  }
  const int64_t elements = 2 * pairs;
  store_part(p, x, elements);
  if (elements > 8) store_part(p + 8, y, elements - 8);
}

template <typename T, typename A>
void turn(const T* x, const A* angles, T* out, int64_t width, bool interleaved) {
  const int64_t half = width / 2;
  for_eights(half, [&](int64_t i, auto load, auto store) {
    F8 cos, sin, one, two;
    load_pairs(angles + 2 * i, half - i, &cos, &sin);
    if (interleaved) {
      load_pairs(x + 2 * i, half - i, &one, &two);
    } else {
      one = load(x + i);
      two = load(x + half + i);
    }
    const F8 first = sub(mul(one, cos), mul(two, sin));
    const F8 second = add(mul(two, cos), mul(one, sin));
    if (interleaved) {
      store_pairs(out + 2 * i, first, second, half - i);
    } else {
      store(out + i, first);
      store(out + half + i, second);
    }
  });
}

}  // namespace

template <typename T>
void rope(const void* x, const void* angles, bool float_angles, void* out, int64_t width,
          bool interleaved) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  if (float_angles) return turn(from, static_cast<const float*>(angles), to, width, interleaved);
  turn(from, static_cast<const T*>(angles), to, width, interleaved);
}

template void rope<float>(const void*, const void*, bool, void*, int64_t, bool);
template void rope<bf16>(const void*, const void*, bool, void*, int64_t, bool);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
