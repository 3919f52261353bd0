// Sums over a row of 32 lanes, element i in lane i % 32, and one order in which the lanes are added:
// a row's bits depend neither on the other rows nor on the width of the CPU's vectors.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace onnx_iron {
namespace ONNX_IRON_PATH {

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

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
