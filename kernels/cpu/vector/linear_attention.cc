// LinearAttention over a block of a head's columns, which stays in the first-level cache. Sums over
// the keys' width are in ascending order, a column in its own lane.
#include <cstring>

#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/exponentials.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// A row's part of a block: `vectors` eights of columns, each by load and store.
template <int vectors, typename T, typename Load, typename Store>
struct Block {
  const LinearAttentionShape& shape;
  float* state;  // of the head, from the block's first column on
  Load load;
  Store store;

  // The state decays; sums[v] = the state's values for the key, where they are asked for.
  __attribute__((always_inline)) void decay(const float* decay, const T* key, F8* sums) const {
    for (int v = 0; v < vectors; ++v) sums[v] = zero();
    for (int64_t k = 0; k < shape.key_width; ++k) {
      float* row = state + k * shape.value_width;
      const F8 by = splat(key == nullptr ? 0.0f : widen_one(key[k]));
      const F8 factor = splat(decay == nullptr ? 1.0f : decay[shape.decays == 1 ? 0 : k]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        F8 now = load(row + 8 * v);
        if (decay != nullptr) {
          now = mul(now, factor);
          store(row + 8 * v, now);
        }
        if (key != nullptr) sums[v] = add(sums[v], mul(by, now));
      }
    }
  }

  // The state takes in a row's key and values; sums[v] = what it then has for the query.
  __attribute__((always_inline)) void take(const T* key, const F8* values, const T* query,
                                           F8* sums) const {
    for (int v = 0; v < vectors; ++v) sums[v] = zero();
    for (int64_t k = 0; k < shape.key_width; ++k) {
      float* row = state + k * shape.value_width;
      const F8 by = splat(widen_one(key[k])), asks = splat(widen_one(query[k]));
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const F8 now = add(load(row + 8 * v), mul(by, values[v]));
        store(row + 8 * v, now);
        sums[v] = add(sums[v], mul(asks, now));
      }
    }
  }

  // sums[v] = what the state has for a further query.
  __attribute__((always_inline)) void read(const T* query, F8* sums) const {
    for (int v = 0; v < vectors; ++v) sums[v] = zero();
    for (int64_t k = 0; k < shape.key_width; ++k) {
      const float* row = state + k * shape.value_width;
      const F8 asks = splat(widen_one(query[k]));
      for (int v = 0; v < vectors; ++v) {
        sums[v] = add(sums[v], mul(asks, load(row + 8 * v)));
      }
    }
  }
};

template <int vectors, typename T, typename Load, typename Store>
void run(const LinearAttentionShape& shape, const LinearAttentionOperands& at, int64_t rows,
         int64_t head, int64_t column, Load load, Store store) {
  const int64_t keys = shape.key_width, width = shape.value_width;
  const int64_t head_state = head * keys * width + column;
  const Block<vectors, T, Load, Store> block = {shape, at.new_state + head_state, load, store};
  if (at.new_state != at.state) {
    for (int64_t k = 0; k < keys; ++k) {
      for (int v = 0; v < vectors; ++v) {
        const int64_t place = k * width + 8 * v;
        store(block.state + place, load(at.state + head_state + place));
      }
    }
  }
  const F8 scale = splat(shape.scale);
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t row = t * shape.heads + head;  // among those of all heads
    const T* key = static_cast<const T*>(at.key) + row * keys;
    const T* value = static_cast<const T*>(at.value) + row * width + column;
    const T* query = static_cast<const T*>(at.query) + row * shape.queries * keys;
    T* y = static_cast<T*>(at.y) + row * shape.queries * width + column;
    const float* decay = shape.decays == 0 ? nullptr : at.decay + row * shape.decays;
    F8 values[vectors], sums[vectors];
    for (int v = 0; v < vectors; ++v) values[v] = load(value + 8 * v);
    if (decay != nullptr || shape.corrects) {
      block.decay(decay, shape.corrects ? key : nullptr, sums);
    }
    if (shape.corrects) {
      const F8 rate = splat(at.beta[row]);
      for (int v = 0; v < vectors; ++v) values[v] = mul(rate, sub(values[v], sums[v]));
    }
    block.take(key, values, query, sums);
    for (int64_t further = 0; further < shape.queries; ++further) {
      if (further > 0) block.read(query + further * keys, sums);
      for (int v = 0; v < vectors; ++v) {
        store(y + further * width + 8 * v, mul(scale, sums[v]));
      }
    }
  }
}

}  // namespace

template <typename T>
void linear_attention(const LinearAttentionShape& shape, const LinearAttentionOperands& operands,
                      int64_t rows, int64_t head, int64_t column) {
  const auto whole_load = [](const auto* p) { return load(p); };
  const auto whole_store = [](auto* p, F8 x) { store(p, x); };
  static_assert(kStateColumns == 32);
  if (column + kStateColumns <= shape.value_width) {
    return run<4, T>(shape, operands, rows, head, column, whole_load, whole_store);
  }
  for (; column + 8 <= shape.value_width; column += 8) {
    run<1, T>(shape, operands, rows, head, column, whole_load, whole_store);
  }
  const int64_t rest = shape.value_width - column;
  if (rest == 0) return;
  run<1, T>(
      shape, operands, rows, head, column, [rest](const auto* p) { return load_part(p, rest); },
      [rest](auto* p, F8 x) { store_part(p, x, rest); });
}

template <typename T>
void widened_exp(const void* x, float* out, int64_t n) {
  const T* from = static_cast<const T*>(x);
  for_eights(n, [&](int64_t i, auto load, auto store) { store(out + i, exp(load(from + i))); });
}

template void linear_attention<float>(const LinearAttentionShape&, const LinearAttentionOperands&,
                                      int64_t, int64_t, int64_t);
template void linear_attention<bf16>(const LinearAttentionShape&, const LinearAttentionOperands&,
                                     int64_t, int64_t, int64_t);
template void widened_exp<float>(const void*, float*, int64_t);
template void widened_exp<bf16>(const void*, float*, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
