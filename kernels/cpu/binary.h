// What kernels of two operands with numpy's broadcasting share.
#pragma once

#include <vector>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

// body(a, a_one, b, b_one, out, n) on typed pointers, for every run of the output.
template <typename T, typename Body>
void for_all(const Broadcast<2>& plan, int64_t count, const Buffers& buffers, Threads& threads,
             Body&& body) {
  const T* a = static_cast<const T*>(buffers.inputs[0]);
  const T* b = static_cast<const T*>(buffers.inputs[1]);
  T* out = static_cast<T*>(buffers.outputs[0]);
  parallel_ranges(threads, count, kLightGrain, 64, [&](int64_t begin, int64_t end) {
    plan.for_runs(begin, end, [&](const auto& offsets, const auto& moves, int64_t at, int64_t n) {
      body(a + offsets[0], !moves[0], b + offsets[1], !moves[1], out + at, n);
    });
  });
}

inline std::vector<Shape> broadcast_shapes(const Node& node) {
  check_inputs(node, 2, 2);
  return {broadcast_shape(node, node.inputs[0].shape, node.inputs[1].shape)};
}

inline void check_binary(const Node& node) {
  check_counts(node, 2, 2);
  const Operand &a = node.inputs[0], &b = node.inputs[1], &out = node.outputs[0];
  check_same_dtype(node, "b", b, "a", a);
  check_same_dtype(node, "out", out, "a", a);
  check_shape(node, "out", out, broadcast_shapes(node)[0], " (a and b broadcast)");
}

}  // namespace onnx_iron
