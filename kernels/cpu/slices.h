// What Copy, Narrow and SliceScatter share: bytes moved, and a part at a per-call place.
#pragma once

#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

inline void copy_bytes(const void* from, void* to, int64_t bytes, Threads& threads) {
  if (from == to) return;
  parallel_ranges(threads, bytes, 8 * kLightGrain, 64, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                end - begin);
  });
}

// Where along an axis a call reads or writes.
struct Place {
  int64_t start, rows;
};

// The place of one call; `length` entries are the most that it can take.
inline Place place_of(const char* op, const void* start, const void* rows, int64_t length,
                      int64_t dim) {
  const Place place{scalar_at(start, 0), scalar_at(rows, length)};
  if (place.rows < 0 || place.rows > length) {
    throw std::invalid_argument(text(op, ": rows is ", place.rows, ", expected 0..", length));
  }
  if (place.start < 0 || place.start > dim - place.rows) {
    throw std::invalid_argument(text(op, ": start is ", place.start, " and rows ", place.rows,
                                     ", expected 0 <= start <= ", dim - place.rows,
                                     " (the axis has ", dim, " entries)"));
  }
  return place;
}

inline int64_t axis_attribute(const Node& node) {
  return axis_of(node, node.attributes.integer("axis", 0), node.inputs[0].shape.size());
}

}  // namespace onnx_iron
