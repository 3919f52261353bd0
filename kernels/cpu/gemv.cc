// GEMV.
#include "kernels/cpu/products.h"

namespace onnx_iron {
namespace {

std::vector<Shape> gemv_shapes(const Node& node) {
  check_inputs(node, 2, 2);
  const Shape &weight = node.inputs[0].shape, &x = node.inputs[1].shape;
  require(weight.size() == 2, node, "weight has shape ", text_of(weight), ", expected (N, K)");
  const int64_t n = weight[0], k = weight[1];
  const bool flat = x == Shape{k};
  require(flat || x == Shape{1, k}, node, "x has shape ", text_of(x), ", expected (", k,
          ",) or (1, ", k, ") (weight has shape ", text_of(weight), ")");
  return {flat ? Shape{n} : Shape{1, n}};
}

std::unique_ptr<Kernel> make_gemv(const Node& node) {
  check_factors(node, "weight", "x");
  check_shape(node, "out", node.outputs[0], gemv_shapes(node)[0], " (weight's rows)");
  const int64_t n = node.inputs[0].shape[0], k = node.inputs[0].shape[1];
  return std::make_unique<ColMajorProduct>(node.inputs[0].dtype, 1, n, k, 1, 0, nullptr);
}

const Registration kGEMV("GEMV", make_gemv, gemv_shapes);

}  // namespace
}  // namespace onnx_iron
