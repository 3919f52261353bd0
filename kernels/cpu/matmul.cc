// The standard MatMul.
#include "kernels/cpu/products.h"

namespace onnx_iron {
namespace {

std::unique_ptr<Kernel> make_matmul(const Node& node) {
  check_factors(node, "a", "b");
  Shape a = node.inputs[0].shape, b = node.inputs[1].shape;
  require(!a.empty() && !b.empty(), node, "a has shape ", text_of(a), " and b ", text_of(b),
          ", expected at least one dimension each");
  // As numpy: a vector is one row on the left, one column on the right, and leaves no dimension.
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  int64_t m = a[a.size() - 2];
  const int64_t k = a.back(), n = b.back();
  require(b[b.size() - 2] == k, node, "b has shape ", text_of(node.inputs[1].shape), ", expected ",
          k, " where its products are summed (a has shape ", text_of(node.inputs[0].shape), ")");
  Shape a_batch(a.begin(), a.end() - 2);
  const Shape b_batch(b.begin(), b.end() - 2);
  Shape batch = broadcast_shape(node, a_batch, b_batch);
  Shape out = batch;
  if (!row) out.push_back(m);
  if (!column) out.push_back(n);
  check_shape(node, "out", node.outputs[0], out, " (a by b)");
  // One matrix b for all: then all the rows of a are one matrix too.
  if (b_batch == Shape(b_batch.size(), 1)) {
    m *= element_count(a_batch);
    batch.clear();
    a_batch.clear();
    return std::make_unique<RowMajorProduct>(node.inputs[0].dtype, batch, a_batch, batch, m, n, k,
                                             nullptr);
  }
  return std::make_unique<RowMajorProduct>(node.inputs[0].dtype, batch, a_batch, b_batch, m, n, k,
                                           nullptr);
}

const Registration kMatMul("MatMul", make_matmul);

}  // namespace
}  // namespace onnx_iron
