// MatMulNBits of com.microsoft: rows by a matrix in codes.
#include "kernels/cpu/codes.h"
#include "kernels/cpu/products.h"

namespace onnx_iron {
namespace {

class CodedProduct : public Kernel {
 public:
  CodedProduct(const CodedWeight& weight, DType dtype, int64_t m, int64_t n, int64_t k)
      : weight_(weight), dtype_(dtype), loops_(loops().of(dtype)), m_(m), n_(n), k_(k) {}

  size_t scratch_bytes() const override {
    const int64_t widened = dtype_ == DType::kFloat32 ? 0 : m_ * k_;
    return (groups() * group_floats(k_) + widened) * sizeof(float);
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    float* packed = static_cast<float*>(buffers.scratch);
    const void* a = buffers.inputs[0];
    if (dtype_ != DType::kFloat32) {
      float* wide = packed + groups() * group_floats(k_);
      loops_.widen(a, wide, m_ * k_);
      a = wide;
    }
    const int64_t group_grain = kLightGrain / (kGroupRows * std::max<int64_t>(k_, 1));
    parallel_ranges(threads, groups(), group_grain, 1, [&](int64_t begin, int64_t end) {
      loops().float32.pack(a, packed, m_, k_, begin, end);
    });
    const Codes codes = weight_.at(buffers);
    constexpr int64_t kTileGroups = kTileRows / kGroupRows;
    const int64_t blocks = (groups() + kTileGroups - 1) / kTileGroups;
    const int64_t width = loops_.tile_columns;
    const int64_t columns = (n_ + width - 1) / width;
    // A tile decodes its part of the matrix, whatever the number of rows.
    const int64_t products = std::clamp<int64_t>(m_, 16, kTileRows) * width * k_;
    const int64_t grain = kProductGrain / std::max<int64_t>(products, 1);
    parallel_ranges(threads, blocks * columns, grain, 1, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t block = tile / columns;
        loops_.gemm_codes(packed, codes, buffers.outputs[0], m_, n_, k_, groups() * block / blocks,
                          groups() * (block + 1) / blocks, tile % columns * width);
      }
    });
  }

  Work work(const Buffers&, const Work& declared) const override {
    return {2 * m_ * n_ * k_, declared.bytes};
  }

 private:
  int64_t groups() const { return (m_ + kGroupRows - 1) / kGroupRows; }

  CodedWeight weight_;
  DType dtype_;
  const TypedLoops& loops_;
  int64_t m_, n_, k_;
};

std::unique_ptr<Kernel> make_matmul_nbits(const Node& node) {
  check_counts(node, 3, 4);
  const Operand &a = node.inputs[0], &b = node.inputs[1], &out = node.outputs[0];
  check_real(node, "a", a);
  check_same_dtype(node, "out", out, "a", a);
  require(!a.shape.empty(), node, "a has shape (), expected (..., K)");
  require(b.shape.size() == 3, node, "b has shape ", text_of(b.shape),
          ", expected (N, blocks, bytes of a block)");
  const int64_t k = a.shape.back(), n = b.shape[0];
  const CodedWeight weight(node, 1, 3, a.dtype, n, k);
  check_shape(node, "b", b, {n, weight.blocks(), weight.block() * weight.bits() / 8},
              text(" (a has shape ", text_of(a.shape), ", blocks of ", weight.block(), ")"));
  Shape expected = a.shape;
  expected.back() = n;
  check_shape(node, "out", out, expected, " (rows of a, rows of b)");
  const int64_t m = product(a.shape, 0, a.shape.size() - 1);
  return std::make_unique<CodedProduct>(weight, a.dtype, m, n, k);
}

const Registration kMatMulNBits("MatMulNBits", make_matmul_nbits);

}  // namespace
}  // namespace onnx_iron
