// Embedding: rows of a table by number.
#include "kernels/cpu/gather.h"

namespace onnx_iron {
namespace {

std::vector<Shape> embedding_shapes(const Node& node) {
  check_inputs(node, 2, 2);
  require(node.inputs[0].shape.size() == 2, node, "weight has shape ",
          text_of(node.inputs[0].shape), ", expected (V, D)");
  return {gathered_shape(node, 0)};
}

std::unique_ptr<Kernel> make_embedding(const Node& node) {
  check_counts(node, 2, 2);
  embedding_shapes(node);  // what it checks
  return make_gather(node, "weight", "ids", 0, false);
}

const Registration kEmbedding("Embedding", make_embedding, embedding_shapes);

}  // namespace
}  // namespace onnx_iron
