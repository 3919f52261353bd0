#include "provider/native/signatures.h"

namespace onnx_iron {

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all = {
#include "provider/native/operator_signatures.inc"
  };
  return all;
}

}  // namespace onnx_iron
