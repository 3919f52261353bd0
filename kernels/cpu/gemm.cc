// GEMM and ProjectionGEMM: one kernel, with or without an epilogue.
#include "kernels/cpu/products.h"

namespace onnx_iron {
namespace {

std::vector<Shape> product_shapes(const Node& node) {
  check_inputs(node, 2, 2);
  const bool col_major = flag_of(node, "b_col_maj", false);
  const Shape &a = node.inputs[0].shape, &b = node.inputs[1].shape;
  require(a.size() == 2, node, "a has shape ", text_of(a), ", expected (M, K)");
  const int64_t k = a[1];
  require(b.size() == 2 && b[col_major ? 1 : 0] == k, node, "b has shape ", text_of(b),
          ", expected ", col_major ? text("(N, ", k, ")") : text("(", k, ", N)"), " (a has shape ",
          text_of(a), ", b_col_maj is ", col_major, ")");
  return {{a[0], b[col_major ? 0 : 1]}};
}

std::unique_ptr<Kernel> make_product(const Node& node, const char* precision, UnaryLoop epilogue) {
  check_factors(node, "a", "b");
  choice_of(node, "precision", precision, {"default", "high", "highest"});
  const Shape expected = product_shapes(node)[0];
  check_shape(node, "out", node.outputs[0], expected, " (rows of a, columns of b)");
  const int64_t m = expected[0], n = expected[1], k = node.inputs[0].shape[1];
  const DType dtype = node.inputs[0].dtype;
  if (flag_of(node, "b_col_maj", false)) {
    return std::make_unique<ColMajorProduct>(dtype, m, n, k, 0, 1, epilogue);
  }
  return std::make_unique<RowMajorProduct>(dtype, Shape{}, Shape{}, Shape{}, m, n, k, epilogue);
}

std::unique_ptr<Kernel> make_gemm(const Node& node) {
  return make_product(node, "highest", nullptr);
}

std::unique_ptr<Kernel> make_projection_gemm(const Node& node) {
  std::vector<std::string> names = {"none"};
  std::vector<UnaryLoop> epilogues = {nullptr};
  for (const UnaryFunction* function : unary_functions(loops())) {
    if (function->epilogue == nullptr) continue;
    names.push_back(function->epilogue);
    epilogues.push_back(function->float32);
  }
  const std::string chosen = choice_of(node, "epilogue", "none", names);
  const auto index = std::find(names.begin(), names.end(), chosen) - names.begin();
  return make_product(node, "default", epilogues[index]);
}

const Registration kGEMM("GEMM", make_gemm, product_shapes);
const Registration kProjectionGEMM("ProjectionGEMM", make_projection_gemm, product_shapes);

}  // namespace
}  // namespace onnx_iron
