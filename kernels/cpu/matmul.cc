// Matrix products: GEMV, GEMM, ProjectionGEMM, MatMul.
#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// Products and sums that are worth a task.
constexpr int64_t kProductGrain = 1 << 18;
// Elements of a matrix that is read once that are worth a task.
constexpr int64_t kStreamGrain = 1 << 15;

// a (M, K) by b (N, K) transposed.
class ColMajorProduct : public Kernel {
 public:
  ColMajorProduct(DType dtype, int64_t m, int64_t n, int64_t k, size_t a, size_t b,
                  UnaryOp epilogue)
      : loops_(loops().of(dtype)), m_(m), n_(n), k_(k), a_(a), b_(b), epilogue_(epilogue) {}

  size_t scratch_bytes() const override {
    const int64_t rows = m_ == 1 ? 1 : groups() * kGroupRows;
    return rows * padded(k_) * sizeof(float);
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const void *a = buffers.inputs[a_], *b = buffers.inputs[b_];
    float* packed = static_cast<float*>(buffers.scratch);
    void* out = buffers.outputs[0];
    if (m_ == 1) {
      loops_.widen(a, packed, k_);
      std::fill(packed + k_, packed + padded(k_), 0.0f);
      parallel_ranges(threads, n_, kStreamGrain / std::max<int64_t>(k_, 1), 8,
                      [&](int64_t begin, int64_t end) {
                        loops_.gemv(b, packed, out, k_, begin, end, epilogue_);
                      });
      return;
    }
    const int64_t group_grain = kLightGrain / (kGroupRows * std::max<int64_t>(k_, 1));
    parallel_ranges(threads, groups(), group_grain, 1, [&](int64_t begin, int64_t end) {
      loops_.pack(a, packed, m_, k_, begin, end);
    });
    constexpr int64_t kTileGroups = kTileRows / kGroupRows;
    const int64_t blocks = (groups() + kTileGroups - 1) / kTileGroups;
    const int64_t columns = (n_ + kTileColumns - 1) / kTileColumns;
    const int64_t products = std::min(m_, kTileRows) * kTileColumns * k_;
    const int64_t grain = kProductGrain / std::max<int64_t>(products, 1);
    // Tiles of one block of rows follow each other, so that its part of a stays in the cache.
    parallel_ranges(threads, blocks * columns, grain, 1, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t block = tile / columns;
        loops_.gemm(packed, b, out, m_, n_, k_, groups() * block / blocks,
                    groups() * (block + 1) / blocks, tile % columns * kTileColumns, epilogue_);
      }
    });
  }

 private:
  int64_t groups() const { return (m_ + kGroupRows - 1) / kGroupRows; }

  const TypedLoops& loops_;
  int64_t m_, n_, k_;
  size_t a_, b_;  // which inputs they are
  UnaryOp epilogue_;
};

// a (..., M, K) by b (..., K, N), the dimensions before the last two broadcast.
class RowMajorProduct : public Kernel {
 public:
  RowMajorProduct(DType dtype, const Shape& batch, const Shape& a_batch, const Shape& b_batch,
                  int64_t m, int64_t n, int64_t k, UnaryOp epilogue)
      : dtype_(dtype),
        loops_(loops().of(dtype)),
        m_(m),
        n_(n),
        k_(k),
        a_count_(element_count(a_batch) * m * k),
        epilogue_(epilogue) {
    const int64_t count = m * n == 0 ? 0 : element_count(batch);
    Broadcast<2>(batch, {a_batch, b_batch})
        .for_runs(0, count, [&](const auto& from, const auto& moves, int64_t, int64_t length) {
          for (int64_t i = 0; i < length; ++i) {
            pairs_.push_back({from[0] + (moves[0] ? i : 0), from[1] + (moves[1] ? i : 0)});
          }
        });
  }

  size_t scratch_bytes() const override {
    return dtype_ == DType::kFloat32 ? 0 : a_count_ * sizeof(float);
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const float* a = static_cast<const float*>(buffers.inputs[0]);
    if (dtype_ != DType::kFloat32) {
      float* wide = static_cast<float*>(buffers.scratch);
      const char* from = static_cast<const char*>(buffers.inputs[0]);
      const int64_t size = size_of(dtype_);
      parallel_ranges(threads, a_count_, kLightGrain, 64, [&](int64_t begin, int64_t end) {
        loops_.widen(from + begin * size, wide + begin, end - begin);
      });
      a = wide;
    }
    if (m_ == 1) return run_rows(a, buffers, threads);
    const int64_t blocks = (m_ + kRowMajorTileRows - 1) / kRowMajorTileRows;
    const int64_t columns = (n_ + kRowMajorTileColumns - 1) / kRowMajorTileColumns;
    const int64_t tiles = blocks * columns;
    const int64_t products = std::min(m_, kRowMajorTileRows) * kRowMajorTileColumns * k_;
    const int64_t grain = kProductGrain / std::max<int64_t>(products, 1);
    parallel_ranges(threads, static_cast<int64_t>(pairs_.size()) * tiles, grain, 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const Operands at = operands(a, buffers, i / tiles);
                        const int64_t block = i % tiles / columns;
                        loops_.gemm_row_major(at.a, at.b, at.out, n_, k_, m_ * block / blocks,
                                              m_ * (block + 1) / blocks,
                                              i % columns * kRowMajorTileColumns, epilogue_);
                      }
                    });
  }

 private:
  struct Operands {
    const float* a;
    const void* b;
    void* out;
  };

  Operands operands(const float* a, const Buffers& buffers, int64_t pair) const {
    const int64_t size = size_of(dtype_);
    const auto [of_a, of_b] = pairs_[pair];
    return {a + of_a * m_ * k_, static_cast<const char*>(buffers.inputs[1]) + of_b * k_ * n_ * size,
            static_cast<char*>(buffers.outputs[0]) + pair * m_ * n_ * size};
  }

  // Single rows: b is read once, in long pieces of its rows.
  void run_rows(const float* a, const Buffers& buffers, Threads& threads) const {
    constexpr int64_t kPiece = 64;
    const int64_t pieces = (n_ + kPiece - 1) / kPiece;
    const int64_t grain = kStreamGrain / (kPiece * std::max<int64_t>(k_, 1));
    parallel_ranges(threads, static_cast<int64_t>(pairs_.size()) * pieces, grain, 1,
                    [&](int64_t begin, int64_t end) {
                      while (begin < end) {
                        const int64_t pair = begin / pieces, piece = begin % pieces;
                        const int64_t count = std::min(pieces - piece, end - begin);
                        const Operands at = operands(a, buffers, pair);
                        loops_.gemv_row_major(at.a, at.b, at.out, n_, k_, piece * kPiece,
                                              std::min(n_, (piece + count) * kPiece), epilogue_);
                        begin += count;
                      }
                    });
  }

  DType dtype_;
  const TypedLoops& loops_;
  int64_t m_, n_, k_, a_count_;
  UnaryOp epilogue_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;  // which matrices of a and b meet
};

void check_operands(const Node& node, const char* first, const char* second) {
  check_counts(node, 2, 2);
  check_real(node, first, node.inputs[0]);
  check_same_dtype(node, second, node.inputs[1], first, node.inputs[0]);
  check_same_dtype(node, "out", node.outputs[0], first, node.inputs[0]);
}

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
  check_operands(node, "weight", "x");
  check_shape(node, "out", node.outputs[0], gemv_shapes(node)[0], " (weight's rows)");
  const int64_t n = node.inputs[0].shape[0], k = node.inputs[0].shape[1];
  return std::make_unique<ColMajorProduct>(node.inputs[0].dtype, 1, n, k, 1, 0, UnaryOp::kIdentity);
}

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

std::unique_ptr<Kernel> make_product(const Node& node, const char* precision, UnaryOp epilogue) {
  check_operands(node, "a", "b");
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
  return make_product(node, "highest", UnaryOp::kIdentity);
}

std::unique_ptr<Kernel> make_projection_gemm(const Node& node) {
  const std::string epilogue =
      choice_of(node, "epilogue", "none", {"none", "gelu", "silu", "sigmoid"});
  UnaryOp op = UnaryOp::kIdentity;
  if (epilogue == "gelu") op = UnaryOp::kGELU;
  if (epilogue == "silu") op = UnaryOp::kSiLU;
  if (epilogue == "sigmoid") op = UnaryOp::kSigmoid;
  return make_product(node, "default", op);
}

std::unique_ptr<Kernel> make_matmul(const Node& node) {
  check_operands(node, "a", "b");
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
                                             UnaryOp::kIdentity);
  }
  return std::make_unique<RowMajorProduct>(node.inputs[0].dtype, batch, a_batch, b_batch, m, n, k,
                                           UnaryOp::kIdentity);
}

const Registration kGEMV("GEMV", make_gemv, gemv_shapes);
const Registration kGEMM("GEMM", make_gemm, product_shapes);
const Registration kProjectionGEMM("ProjectionGEMM", make_projection_gemm, product_shapes);
const Registration kMatMul("MatMul", make_matmul);

}  // namespace
}  // namespace onnx_iron
