// RMSNorm, and the standard RMSNormalization.
#include "kernels/cpu/norms.h"

namespace onnx_iron {
namespace {

class RMSNorm : public Norm {
 public:
  using Norm::Norm;

 protected:
  void run_rows(const void* x, const void* weight, const void* /*bias*/, void* out, int64_t rows,
                int64_t width) const override {
    loops_.rms_norm(x, weight, out, rows, width, epsilon_);
  }
};

std::unique_ptr<Kernel> make_rms_norm(const Node& node) {
  return std::make_unique<RMSNorm>(node, check_own_norm(node));
}

std::unique_ptr<Kernel> make_rms_normalization(const Node& node) {
  return std::make_unique<RMSNorm>(node, check_standard_norm(node, 2));
}

const Registration kRMSNorm("RMSNorm", make_rms_norm);
const Registration kRMSNormalization("RMSNormalization", make_rms_normalization);

}  // namespace
}  // namespace onnx_iron
