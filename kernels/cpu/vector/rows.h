// Sums over a row of 32 lanes, element i in lane i % 32, and one order in which the lanes are
// added: a row's bits depend neither on the other rows nor on the width of the CPU's vectors.
#pragma once

#include "kernels/cpu/vector/doubles.h"
#include "kernels/cpu/vector/wide.h"

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

// As row_sum, of a term that gives kWide of them; term(i, load, store).
template <typename Term>
ONNX_IRON_INLINE float wide_row_sum(int64_t width, Term&& term) {
  constexpr int kParts = 32 / kWide;
  Wide lanes[kParts];
  for (Wide& part : lanes) part = all<Wide>(0.0f);
  int64_t i = 0;
  const auto whole = [](const auto* p) { return wide_at(p); };
  const auto kept = [](auto* p, Wide x) { keep(p, x); };
  for (; i + 32 <= width; i += 32) {
    for (int part = 0; part < kParts; ++part) {
      lanes[part] = add(lanes[part], term(i + part * kWide, whole, kept));
    }
  }
  for (int part = 0; i < width; i += kWide, ++part) {
    const int64_t rest = width - i < kWide ? width - i : kWide;
    const auto masked = [rest](const auto* p) { return part_at(p, rest); };
    const auto stored = [rest](auto* p, Wide x) { keep_part(p, x, rest); };
    lanes[part] = add(lanes[part], keep_below(term(i, masked, stored), rest));
  }
  return sum_lanes(lanes);
}

// The sum of a row in float64, in 32 lanes likewise, and then one of eight after the other.
template <typename T>
ONNX_IRON_INLINE double row_total(const T* x, int64_t width) {
  const D8 none = splat_double(0.0);
  D8 sums[4] = {none, none, none, none};
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    for (int part = 0; part < 4; ++part) {
      sums[part] = add(sums[part], to_double(load(x + i + 8 * part)));
    }
  }
  for (int part = 0; i < width; i += 8, ++part) {
    sums[part] = add(sums[part], to_double(load_part(x + i, width - i)));
  }
  double lanes[8];
  store(lanes, add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  double total = 0.0;
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
