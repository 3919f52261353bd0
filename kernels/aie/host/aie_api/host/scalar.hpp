// bfloat16, the rounding mode, and how the cores add and multiply one float32.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
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

// A biased exponent; 0 for zero, for a subnormal is zero.
inline int exponent(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff); }

// A number to the nearest multiple of 2^(exponent - 127 - 23 - finer), ties to even: what is left
// of an operand that a sum shifts to its largest operand's exponent. Infinity and NaN stay.
inline double aligned(double x, int exponent, int finer) {
  // Added to a number in double, it leaves no bit below that place.
  const uint64_t place = static_cast<uint64_t>(exponent - 98 - finer + 1023) << 52;
  const double shift = std::bit_cast<double>(place | uint64_t{1} << 51);
  return std::copysign((x + shift) - shift, x);
}

// accfloat + accfloat: both aligned to the larger exponent, 24 bits, then rounded to nearest.
inline float add(float a, float b) {
  a = flush(a);
  b = flush(b);
  const int largest = std::max(exponent(a), exponent(b));
  return flush(static_cast<float>(aligned(a, largest, 0) + aligned(b, largest, 0)));
}

// The product of two bfloat16 values: 16 bits of mantissa, so exact.
inline float multiply_halves(float a, float b) { return flush(a * b); }

// accfloat + bfloat16 * bfloat16, as one vector instruction: the exact product counts as a number
// of the exponent that it would have if its leading bit were the higher of two, and the accumulator
// keeps three bits more.
inline float multiply_add(float sum, float a, float b) {
  sum = flush(sum);
  const int of_product = a == 0.0f || b == 0.0f ? 0 : exponent(a) + exponent(b) + 1 - 127;
  const int largest = std::max(exponent(sum), of_product);
  const double product = static_cast<double>(a) * static_cast<double>(b);
  return flush(static_cast<float>(aligned(sum, largest, 3) + aligned(product, largest, 0)));
}

// A float32 as the sum of three bfloat16, rounded by the mode that is set.
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

// float32 * float32: nine products of limbs, the smallest first. Infinity times anything is NaN,
// since infinity has no three limbs.
inline float multiply(float a, float b) {
  constexpr int order[9][2] = {{2, 2}, {2, 1}, {1, 2}, {0, 2}, {1, 1},
                               {2, 0}, {1, 0}, {0, 1}, {0, 0}};
  const Limbs x(a), y(b);
  float sum = 0.0f;
  for (const auto& [i, j] : order) sum = multiply_add(sum, x.part[i], y.part[j]);
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

using int16 = int16_t;
using int32 = int32_t;
