// The standard Gather.
#include "kernels/cpu/gather.h"

namespace onnx_iron {
namespace {

std::unique_ptr<Kernel> make_standard_gather(const Node& node) {
  check_counts(node, 2, 2);
  const int64_t axis =
      axis_of(node, node.attributes.integer("axis", 0), node.inputs[0].shape.size());
  return make_gather(node, "data", "indices", axis, true);
}

const Registration kGather("Gather", make_standard_gather);

}  // namespace
}  // namespace onnx_iron
