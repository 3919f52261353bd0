// The loops of this instruction set, in order.
#include <iterator>

#include "kernels/cpu/vector/declarations.h"

#define ONNX_IRON_TEXT_OF(path) #path
#define ONNX_IRON_TEXT(path) ONNX_IRON_TEXT_OF(path)

namespace onnx_iron {
namespace ONNX_IRON_PATH {
namespace {

template <typename T>
constexpr TypedLoops typed() {
  return {
      .widen = widen<T>,
      .narrow = narrow<T>,
      .divide = divide<T>,
      .rms_norm = rms_norm<T>,
      .layer_norm = layer_norm<T>,
      .softmax = softmax<T>,
      .log_softmax = log_softmax<T>,
      .reduce = reduce<T>,
      .rope = rope<T>,
      .causal_conv1d = causal_conv1d<T>,
      .selective_scan = selective_scan<T>,
      .linear_attention = linear_attention<T>,
      .widened_exp = widened_exp<T>,
      .gemv = gemv<T>,
      .pack = pack<T>,
      .tile_columns = kTileColumns,
      .gemm = gemm<T>,
      .gemm_codes = gemm_codes<T>,
      .decode = decode<T>,
      .gemv_row_major = gemv_row_major<T>,
      .row_major_group = kRowMajorGroup,
      .pack_rows = pack_rows<T>,
      .gemm_row_major = gemm_row_major<T>,
      .attention = attention<T>,
      .attention_pack = attention_pack<T>,
  };
}

}  // namespace

// The list of the files of functions/ is CMake's.
#define ONNX_IRON_FUNCTION_FILE(stem) extern const FunctionFile functions_in_##stem;
#include "function_files.inc"
#undef ONNX_IRON_FUNCTION_FILE

namespace {

constexpr const FunctionFile* kFunctions[] = {
#define ONNX_IRON_FUNCTION_FILE(stem) &functions_in_##stem,
#include "function_files.inc"
#undef ONNX_IRON_FUNCTION_FILE
};

}  // namespace

extern const Loops kLoops;
// Constant, so that nothing of this instruction set runs when the library is loaded.
constinit const Loops kLoops = {
    ONNX_IRON_TEXT(ONNX_IRON_PATH),
    typed<float>(),
    typed<bf16>(),
    {.attention_tile = attention_tile, .attention_fold = attention_fold},
    kFunctions,
    std::size(kFunctions)};

}  // namespace ONNX_IRON_PATH
}  // namespace onnx_iron
