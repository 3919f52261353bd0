// LayerNorm, and the standard LayerNormalization.
#include "kernels/cpu/norms.h"

namespace onnx_iron {
namespace {

class LayerNorm : public Norm {
 public:
  using Norm::Norm;

 protected:
  void run_rows(const void* x, const void* weight, const void* bias, void* out, int64_t rows,
                int64_t width) const override {
    loops_.layer_norm(x, weight, bias, out, rows, width, epsilon_);
  }
};

std::unique_ptr<Kernel> make_layer_norm(const Node& node) {
  return std::make_unique<LayerNorm>(node, check_own_norm(node));
}

std::unique_ptr<Kernel> make_layer_normalization(const Node& node) {
  return std::make_unique<LayerNorm>(node, check_standard_norm(node, 3));
}

const Registration kLayerNorm("LayerNorm", make_layer_norm);
const Registration kLayerNormalization("LayerNormalization", make_layer_normalization);

}  // namespace
}  // namespace onnx_iron
