// Conversions, and functions of one and of two operands, element by element.
#include "kernels/cpu/vector/declarations.h"
#include "kernels/cpu/vector/functions.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

// NaN where either is one, as numpy's maximum and minimum.
ONNX_IRON_INLINE F8 maximum(F8 a, F8 b) { return where_nan(a, a, larger(a, b)); }
ONNX_IRON_INLINE F8 minimum(F8 a, F8 b) { return where_nan(a, a, smaller(a, b)); }

template <BinaryOp op>
ONNX_IRON_INLINE F8 combine(F8 a, F8 b) {
  if constexpr (op == BinaryOp::kAdd) return add(a, b);
  if constexpr (op == BinaryOp::kSub) return sub(a, b);
  if constexpr (op == BinaryOp::kMul) return mul(a, b);
  if constexpr (op == BinaryOp::kDiv) return div(a, b);
  if constexpr (op == BinaryOp::kMax) return maximum(a, b);
  if constexpr (op == BinaryOp::kMin) return minimum(a, b);
}

template <BinaryOp op, typename T>
void binary_loop(const T* a, bool a_one, const T* b, bool b_one, T* out, int64_t n) {
  if (a_one) {
    const F8 same = splat(widen_one(*a));
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(out + i, combine<op>(same, load(b + i)));
    });
  } else if (b_one) {
    const F8 same = splat(widen_one(*b));
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(out + i, combine<op>(load(a + i), same));
    });
  } else {
    for_eights(n, [&](int64_t i, auto load, auto store) {
      store(out + i, combine<op>(load(a + i), load(b + i)));
    });
  }
}

template <UnaryOp op, typename T>
void unary_loop(const T* x, T* out, int64_t n) {
  for_eights(n, [&](int64_t i, auto load, auto store) { store(out + i, apply<op>(load(x + i))); });
}

}  // namespace

template <typename T>
void widen(const void* x, float* out, int64_t n) {
  const T* from = static_cast<const T*>(x);
  for_eights(n, [&](int64_t i, auto load, auto store) { store(out + i, load(from + i)); });
}

template <typename T>
void narrow(const float* x, void* out, int64_t n) {
  T* to = static_cast<T*>(out);
  for_eights(n, [&](int64_t i, auto load, auto store) { store(to + i, load(x + i)); });
}

template <typename T>
void binary(BinaryOp op, const void* a, bool a_one, const void* b, bool b_one, void* out,
            int64_t n) {
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  T* to = static_cast<T*>(out);
  switch (op) {
    case BinaryOp::kAdd:
      return binary_loop<BinaryOp::kAdd>(left, a_one, right, b_one, to, n);
    case BinaryOp::kSub:
      return binary_loop<BinaryOp::kSub>(left, a_one, right, b_one, to, n);
    case BinaryOp::kMul:
      return binary_loop<BinaryOp::kMul>(left, a_one, right, b_one, to, n);
    case BinaryOp::kDiv:
      return binary_loop<BinaryOp::kDiv>(left, a_one, right, b_one, to, n);
    case BinaryOp::kMax:
      return binary_loop<BinaryOp::kMax>(left, a_one, right, b_one, to, n);
    case BinaryOp::kMin:
      return binary_loop<BinaryOp::kMin>(left, a_one, right, b_one, to, n);
  }
}

template <typename T>
void unary(UnaryOp op, const void* x, void* out, int64_t n) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  switch (op) {
    case UnaryOp::kIdentity:
      return unary_loop<UnaryOp::kIdentity>(from, to, n);
    case UnaryOp::kNeg:
      return unary_loop<UnaryOp::kNeg>(from, to, n);
    case UnaryOp::kAbs:
      return unary_loop<UnaryOp::kAbs>(from, to, n);
    case UnaryOp::kRelu:
      return unary_loop<UnaryOp::kRelu>(from, to, n);
    case UnaryOp::kSqrt:
      return unary_loop<UnaryOp::kSqrt>(from, to, n);
    case UnaryOp::kReciprocal:
      return unary_loop<UnaryOp::kReciprocal>(from, to, n);
    case UnaryOp::kExp:
      return unary_loop<UnaryOp::kExp>(from, to, n);
    case UnaryOp::kErf:
      return unary_loop<UnaryOp::kErf>(from, to, n);
    case UnaryOp::kSigmoid:
      return unary_loop<UnaryOp::kSigmoid>(from, to, n);
    case UnaryOp::kTanh:
      return unary_loop<UnaryOp::kTanh>(from, to, n);
    case UnaryOp::kSiLU:
      return unary_loop<UnaryOp::kSiLU>(from, to, n);
    case UnaryOp::kGELU:
      return unary_loop<UnaryOp::kGELU>(from, to, n);
    case UnaryOp::kGELUTanh:
      return unary_loop<UnaryOp::kGELUTanh>(from, to, n);
  }
}

template void widen<float>(const void*, float*, int64_t);
template void widen<bf16>(const void*, float*, int64_t);
template void narrow<float>(const float*, void*, int64_t);
template void narrow<bf16>(const float*, void*, int64_t);
template void binary<float>(BinaryOp, const void*, bool, const void*, bool, void*, int64_t);
template void binary<bf16>(BinaryOp, const void*, bool, const void*, bool, void*, int64_t);
template void unary<float>(UnaryOp, const void*, void*, int64_t);
template void unary<bf16>(UnaryOp, const void*, void*, int64_t);

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
