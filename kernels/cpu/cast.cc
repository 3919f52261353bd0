// Cast between the dtypes.
#include <cmath>
#include <limits>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// A bool's byte, which may hold any value.
struct Byte {
  uint8_t value;
};

// Towards zero; out of range and NaN give the smallest integer, as x86 and numpy on it do.
template <typename To>
To integer_of(float x) {
  constexpr To kSmallest = std::numeric_limits<To>::min();
  // -kSmallest is a power of two, so it is exact in float32; the largest integer is not.
  constexpr float kBound = -static_cast<float>(kSmallest);
  return x >= -kBound && x < kBound ? static_cast<To>(x) : kSmallest;
}

template <typename From>
auto value_of(From x) {
  if constexpr (std::is_same_v<From, bf16>) {
    return widen_one(x);
  } else if constexpr (std::is_same_v<From, Byte>) {
    return static_cast<int32_t>(x.value != 0);
  } else {
    return x;
  }
}

template <typename To, typename From>
To convert(From given) {
  const auto x = value_of(given);
  if constexpr (std::is_same_v<To, Byte>) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (std::is_same_v<To, bf16>) {
    return narrow_to_bf16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, float>) {
    return static_cast<float>(x);
  } else if constexpr (std::is_same_v<std::remove_const_t<decltype(x)>, float>) {
    return integer_of<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

using Loop = void (*)(const void* x, void* out, int64_t n);

template <typename To, typename From>
void convert_all(const void* x, void* out, int64_t n) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
}

template <typename From>
Loop loop_from(DType to) {
  switch (to) {
    case DType::kFloat32:
      return convert_all<float, From>;
    case DType::kBFloat16:
      return convert_all<bf16, From>;
    case DType::kInt32:
      return convert_all<int32_t, From>;
    case DType::kInt64:
      return convert_all<int64_t, From>;
    default:
      return convert_all<Byte, From>;
  }
}

Loop loop_of(DType from, DType to) {
  switch (from) {
    case DType::kFloat32:
      return loop_from<float>(to);
    case DType::kBFloat16:
      return loop_from<bf16>(to);
    case DType::kInt32:
      return loop_from<int32_t>(to);
    case DType::kInt64:
      return loop_from<int64_t>(to);
    default:
      return loop_from<Byte>(to);
  }
}

class Cast : public Kernel {
 public:
  Cast(DType from, DType to, int64_t count)
      : from_(from), to_(to), count_(count), loop_(loop_of(from, to)) {}

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t read = size_of(from_), written = size_of(to_);
    const char* x = static_cast<const char*>(buffers.inputs[0]);
    char* out = static_cast<char*>(buffers.outputs[0]);
    const TypedLoops& half = loops().bfloat16;
    parallel_ranges(threads, count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
      const char* first = x + begin * read;
      char* to = out + begin * written;
      // The casts at a model's boundary are vectorised.
      if (from_ == DType::kBFloat16 && to_ == DType::kFloat32) {
        half.widen(first, reinterpret_cast<float*>(to), end - begin);
      } else if (from_ == DType::kFloat32 && to_ == DType::kBFloat16) {
        half.narrow(reinterpret_cast<const float*>(first), to, end - begin);
      } else {
        loop_(first, to, end - begin);
      }
    });
  }

 private:
  DType from_, to_;
  int64_t count_;
  Loop loop_;
};

std::unique_ptr<Kernel> make_cast(const Node& node) {
  check_counts(node, 1, 1);
  const Operand &x = node.inputs[0], &out = node.outputs[0];
  const std::vector<DType> known = {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kInt64,
                                    DType::kBool};
  check_dtype(node, "x", x, known);
  check_dtype(node, "out", out, known);
  check_shape(node, "out", out, x.shape, " (as x)");
  return std::make_unique<Cast>(x.dtype, out.dtype, element_count(x.shape));
}

const Registration kCast("Cast", make_cast);

}  // namespace
}  // namespace onnx_iron
