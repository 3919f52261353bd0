// bfloat16, the rounding mode, and how the cores add and multiply one float32.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>

namespace aie {

// aie_api has more modes; our kernels use these.
enum class rounding_mode : unsigned { floor = 0, conv_even = 12 };

namespace host {

inline thread_local rounding_mode mode = rounding_mode::floor;

inline bool is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

// A subnormal is zero, as operand and as result.
inline float flush(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t kept = (bits & 0x7f800000) == 0 ? 0x80000000 : 0xffffffff;
  return std::bit_cast<float>(bits & kept);
}

inline uint16_t nearest_even(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(is_nan(bits) ? (bits >> 16) | 0x40 : rounded);
}

// Towards minus infinity: a negative value that is cut grows in magnitude.
inline uint16_t floored(uint32_t bits) {
  const uint32_t cut = (bits & 0xffff) != 0 ? 1 : 0;
  const uint32_t rounded = (bits >> 16) + (cut & (bits >> 31));
  return static_cast<uint16_t>(is_nan(bits) ? (bits >> 16) | 0x40 : rounded);
}

inline uint16_t round(float x, rounding_mode by) {
  const uint32_t bits = std::bit_cast<uint32_t>(flush(x));
  return by == rounding_mode::conv_even ? nearest_even(bits) : floored(bits);
}

inline float widen(uint16_t bits) {
  return flush(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

inline float add(float a, float b) { return flush(flush(a) + flush(b)); }

// The product of two bfloat16 values: 16 bits of mantissa, so exact.
inline float multiply_halves(float a, float b) { return flush(a * b); }

// A float32 as the sum of three bfloat16.
struct Limbs {
  float part[3];

  explicit Limbs(float x) {
    float rest = flush(x);
    for (float& limb : part) {
      limb = widen(round(rest, mode));
      rest = flush(rest - limb);
    }
  }
};

// Nine products of limbs, summed in float32; up to 2 ulp from the exact product. CONTRACT: the
// order of the sum. Infinity times anything is NaN, since infinity has no three limbs.
inline float multiply(float a, float b) {
  const Limbs x(a), y(b);
  float sum = multiply_halves(x.part[0], y.part[0]);
  for (int order = 1; order <= 4; ++order) {
    for (int i = 0; i < 3; ++i) {
      const int j = order - i;
      if (j >= 0 && j < 3) sum = add(sum, multiply_halves(x.part[i], y.part[j]));
    }
  }
  return sum;
}

}  // namespace host

inline void set_rounding(rounding_mode m) { host::mode = m; }
inline rounding_mode get_rounding() { return host::mode; }
inline rounding_mode swap_rounding(rounding_mode m) {
  const rounding_mode before = host::mode;
  host::mode = m;
  return before;
}

}  // namespace aie

// The compiler's own type on a core. Made from a float only where no rounding is needed, so that no
// kernel depends on how a scalar conversion rounds.
class bfloat16 {
 public:
  bfloat16() = default;
  explicit bfloat16(float x) : bits_(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)) {
    if (std::bit_cast<uint32_t>(x) & 0xffff) {
      throw std::logic_error("bfloat16: a scalar conversion that would round");
    }
  }
  explicit operator float() const { return aie::host::widen(bits_); }

  static bfloat16 from_bits(uint16_t bits) {
    bfloat16 made;
    made.bits_ = bits;
    return made;
  }
  uint16_t bits() const { return bits_; }

 private:
  uint16_t bits_;
};

using int32 = int32_t;
using uint32 = uint32_t;
