// Add, Sub, Mul and Div in bfloat16: of two arrays, of an array and a row, of an array and a
// number.
//
// n is a multiple of kLanes; an array with a row is `rows` rows of n. The output may be an input.
// Accuracy against the reference: Add, Sub and Mul 0 ulp, Div 1 ulp, with IEEE's results for zeros,
// infinities and NaN. Subnormal numbers count as zero.
#include "common.h"

namespace onnx_iron::aie_kernels {
namespace {

struct Add {
  Halves<kLanes> operator()(const Halves<kLanes>& a, const Halves<kLanes>& b) const {
    return aie::add(a, b);
  }
};

struct Sub {
  Halves<kLanes> operator()(const Halves<kLanes>& a, const Halves<kLanes>& b) const {
    return aie::sub(a, b);
  }
};

struct Mul {
  Halves<kLanes> operator()(const Halves<kLanes>& a, const Halves<kLanes>& b) const {
    return aie::mul(a, b).to_vector<bfloat16>();
  }
};

struct Div {
  using Bits = aie::vector<int16, kLanes>;
  static constexpr int16 kSize = 0x7fff, kSmallest = 0x0080, kInfinite = 0x7f80;

  Halves<kLanes> operator()(Halves<kLanes> a, Halves<kLanes> b) const {
    // The inverse of a large b would be subnormal: both operands are scaled down first.
    const bfloat16 down(0x1p-64f);
    const auto large = aie::ge(size_of(b), int16(0x5f80));  // 2^64
    a = aie::select(a, aie::mul(a, down).to_vector<bfloat16>(), large);
    b = aie::select(b, aie::mul(b, down).to_vector<bfloat16>(), large);

    // 0 has an infinite inverse of its sign, infinity one of 0; NaN is its own.
    const Bits size = size_of(b), sign = aie::sub(b.cast_to<int16>(), size);
    const Bits infinite = aie::add(sign, aie::broadcast<int16, kLanes>(kInfinite));
    const Factor<kLanes> inverse(reciprocal<kLanes>(b));
    Halves<kLanes> nearest = inverse.high();
    nearest = aie::select(nearest, infinite.cast_to<bfloat16>(), aie::lt(size, kSmallest));
    nearest = aie::select(nearest, sign.cast_to<bfloat16>(), aie::ge(size, kInfinite));
    nearest = aie::select(nearest, b, aie::ge(size, int16(kInfinite + 1)));

    // Where b or the product of the leading limbs is no ordinary number, that product is the
    // result.
    const Floats<kLanes> quotient = (inverse * a).to_vector<float>();
    const Floats<kLanes> leading = aie::mul(a, nearest).to_vector<float>();
    const auto special = aie::lt(size, kSmallest) | aie::ge(size, kInfinite) |
                         aie::ge(size_bits<kLanes>(leading), kInfinityBits);
    return round<kLanes>(aie::select(quotient, leading, special));
  }

  static Bits size_of(const Halves<kLanes>& x) { return aie::bit_and(kSize, x.cast_to<int16>()); }
};

template <typename F>
void of_arrays(const bfloat16* a, const bfloat16* b, bfloat16* y, int32_t n) {
  const NearestEven rounding;
  for_vectors(n, [&](int32_t i) {
    aie::store_v(y + i, F()(aie::load_v<kLanes>(a + i), aie::load_v<kLanes>(b + i)));
  });
}

template <typename F, bool RowFirst = false>
void of_row(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  const NearestEven rounding;
  for (int32_t r = 0; r < rows; ++r, a += n, y += n) {
    for_vectors(n, [&](int32_t i) {
      const Halves<kLanes> x = aie::load_v<kLanes>(a + i), z = aie::load_v<kLanes>(row + i);
      aie::store_v(y + i, RowFirst ? F()(z, x) : F()(x, z));
    });
  }
}

template <typename F, bool NumberFirst = false>
void of_number(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  const NearestEven rounding;
  const Halves<kLanes> z = aie::broadcast<bfloat16, kLanes>(bfloat16(number));
  for_vectors(n, [&](int32_t i) {
    const Halves<kLanes> x = aie::load_v<kLanes>(a + i);
    aie::store_v(y + i, NumberFirst ? F()(z, x) : F()(x, z));
  });
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void add_bf16(const bfloat16* a, const bfloat16* b, bfloat16* y, int32_t n) {
  of_arrays<Add>(a, b, y, n);
}
void sub_bf16(const bfloat16* a, const bfloat16* b, bfloat16* y, int32_t n) {
  of_arrays<Sub>(a, b, y, n);
}
void mul_bf16(const bfloat16* a, const bfloat16* b, bfloat16* y, int32_t n) {
  of_arrays<Mul>(a, b, y, n);
}
void div_bf16(const bfloat16* a, const bfloat16* b, bfloat16* y, int32_t n) {
  of_arrays<Div>(a, b, y, n);
}

void add_row_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Add>(a, row, y, rows, n);
}
void sub_row_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Sub>(a, row, y, rows, n);
}
void row_sub_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Sub, true>(a, row, y, rows, n);
}
void mul_row_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Mul>(a, row, y, rows, n);
}
void div_row_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Div>(a, row, y, rows, n);
}
void row_div_bf16(const bfloat16* a, const bfloat16* row, bfloat16* y, int32_t rows, int32_t n) {
  of_row<Div, true>(a, row, y, rows, n);
}

void add_number_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Add>(a, y, n, number);
}
void sub_number_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Sub>(a, y, n, number);
}
void number_sub_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Sub, true>(a, y, n, number);
}
void mul_number_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Mul>(a, y, n, number);
}
void div_number_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Div>(a, y, n, number);
}
void number_div_bf16(const bfloat16* a, bfloat16* y, int32_t n, float number) {
  of_number<Div, true>(a, y, n, number);
}
}

ONNX_IRON_KERNEL(add_bf16)
ONNX_IRON_KERNEL(sub_bf16)
ONNX_IRON_KERNEL(mul_bf16)
ONNX_IRON_KERNEL(div_bf16)
ONNX_IRON_KERNEL(add_row_bf16)
ONNX_IRON_KERNEL(sub_row_bf16)
ONNX_IRON_KERNEL(row_sub_bf16)
ONNX_IRON_KERNEL(mul_row_bf16)
ONNX_IRON_KERNEL(div_row_bf16)
ONNX_IRON_KERNEL(row_div_bf16)
ONNX_IRON_KERNEL(add_number_bf16)
ONNX_IRON_KERNEL(sub_number_bf16)
ONNX_IRON_KERNEL(number_sub_bf16)
ONNX_IRON_KERNEL(mul_number_bf16)
ONNX_IRON_KERNEL(div_number_bf16)
ONNX_IRON_KERNEL(number_div_bf16)
