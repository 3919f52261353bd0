// Sharing a loop among threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/kernel.h"

namespace onnx_iron {

// Elements of a light loop that are worth a task.
inline constexpr int64_t kLightGrain = 16384;
// More tasks than threads, so that one slow thread does not hold up the call.
inline constexpr int64_t kTasksPerThread = 4;

// body(begin, end) over parts of 0..total, each at least `grain` long; inner borders are multiples
// of `unit`.
template <typename Body>
void parallel_ranges(Threads& threads, int64_t total, int64_t grain, int64_t unit, Body&& body) {
  if (total <= 0) return;
  const int64_t units = (total + unit - 1) / unit;
  const int64_t most = std::min<int64_t>(total / std::max<int64_t>(grain, 1), units);
  const int64_t count = static_cast<int64_t>(threads.count());
  const int64_t tasks = count <= 1 ? 1 : std::clamp<int64_t>(most, 1, count * kTasksPerThread);
  threads.parallel(static_cast<size_t>(tasks), [&](size_t index) {
    const int64_t i = static_cast<int64_t>(index);
    const int64_t begin = units * i / tasks * unit;
    const int64_t end = std::min(total, units * (i + 1) / tasks * unit);
    if (begin < end) body(begin, end);
  });
}

// The same for `rows` of `width` light elements.
template <typename Body>
void parallel_rows(Threads& threads, int64_t rows, int64_t width, Body&& body) {
  const int64_t grain = std::max<int64_t>(1, kLightGrain / std::max<int64_t>(width, 1));
  parallel_ranges(threads, rows, grain, 1, body);
}

}  // namespace onnx_iron
