// Where in the arena each value is, from how long it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnx_iron {

// Bytes that are used from a step to a step, both included.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes = 0;
};

// An offset for each span, so that no two that are used at once overlap. They are sorted by begin.
std::vector<int64_t> arena_offsets(const std::vector<Span>& spans);

}  // namespace onnx_iron
