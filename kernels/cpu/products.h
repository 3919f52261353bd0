// Matrix products as GEMV, GEMM, ProjectionGEMM and MatMul share them.
#pragma once

#include <utility>
#include <vector>

#include "kernels/cpu/broadcast.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {

// Products and sums that are worth a task.
inline constexpr int64_t kProductGrain = 1 << 18;
// Elements of a matrix that is read once that are worth a task.
inline constexpr int64_t kStreamGrain = 1 << 15;

// a (M, K) by b (N, K) transposed.
class ColMajorProduct : public Kernel {
 public:
  ColMajorProduct(DType dtype, int64_t m, int64_t n, int64_t k, size_t a, size_t b,
                  UnaryLoop epilogue)
      : loops_(loops().of(dtype)), m_(m), n_(n), k_(k), a_(a), b_(b), epilogue_(epilogue) {}

  size_t scratch_bytes() const override {
    return (m_ == 1 ? padded(k_) : groups() * group_floats(k_)) * sizeof(float);
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
    const int64_t tile_columns = loops_.tile_columns;
    const int64_t columns = (n_ + tile_columns - 1) / tile_columns;
    const int64_t products = std::min(m_, kTileRows) * tile_columns * k_;
    const int64_t grain = kProductGrain / std::max<int64_t>(products, 1);
    // Tiles of one block of rows follow each other, so that its part of a stays in the cache.
    parallel_ranges(threads, blocks * columns, grain, 1, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t block = tile / columns;
        loops_.gemm(packed, b, out, m_, n_, k_, groups() * block / blocks,
                    groups() * (block + 1) / blocks, tile % columns * tile_columns, epilogue_);
      }
    });
  }

 private:
  int64_t groups() const { return (m_ + kGroupRows - 1) / kGroupRows; }

  const TypedLoops& loops_;
  int64_t m_, n_, k_;
  size_t a_, b_;  // which inputs they are
  UnaryLoop epilogue_;
};

// a (..., M, K) by b (..., K, N), the dimensions before the last two broadcast.
class RowMajorProduct : public Kernel {
 public:
  RowMajorProduct(DType dtype, const Shape& batch, const Shape& a_batch, const Shape& b_batch,
                  int64_t m, int64_t n, int64_t k, UnaryLoop epilogue)
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
    return m_ == 1 && dtype_ == DType::kFloat32 ? 0 : a_count_ * sizeof(float);
  }

  size_t table_bytes() const override { return pairs_.capacity() * sizeof pairs_[0]; }

  Work work(const Buffers&, const Work& declared) const override {
    return {2 * static_cast<int64_t>(pairs_.size()) * m_ * n_ * k_, declared.bytes};
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    if (m_ == 1) return run_rows(buffers, threads);
    float* packed = static_cast<float*>(buffers.scratch);
    const char* from = static_cast<const char*>(buffers.inputs[0]);
    const int64_t size = size_of(dtype_);
    const int64_t groups = (m_ + loops_.row_major_group - 1) / loops_.row_major_group;
    const int64_t matrices = a_count_ / std::max<int64_t>(m_ * k_, 1);
    const int64_t group_grain = kLightGrain / std::max<int64_t>(loops_.row_major_group * k_, 1);
    parallel_ranges(threads, matrices * groups, group_grain, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i / groups * m_ * k_;
        loops_.pack_rows(from + at * size, packed + at, m_, k_, i % groups, i % groups + 1);
      }
    });
    const int64_t tile_groups = kRowMajorTileRows / loops_.row_major_group;
    const int64_t blocks = (groups + tile_groups - 1) / tile_groups;
    const int64_t columns = (n_ + kRowMajorTileColumns - 1) / kRowMajorTileColumns;
    const int64_t tiles = blocks * columns;
    const int64_t products = std::min(m_, kRowMajorTileRows) * kRowMajorTileColumns * k_;
    const int64_t grain = kProductGrain / std::max<int64_t>(products, 1);
    parallel_ranges(threads, static_cast<int64_t>(pairs_.size()) * tiles, grain, 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const Operands at = operands(packed, buffers, i / tiles);
                        const int64_t block = i % tiles / columns;
                        loops_.gemm_row_major(at.a, at.b, at.out, m_, n_, k_,
                                              groups * block / blocks,
                                              groups * (block + 1) / blocks,
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
  void run_rows(const Buffers& buffers, Threads& threads) const {
    const float* a = static_cast<const float*>(buffers.inputs[0]);
    if (dtype_ != DType::kFloat32) {
      float* wide = static_cast<float*>(buffers.scratch);
      loops_.widen(buffers.inputs[0], wide, a_count_);
      a = wide;
    }
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
  UnaryLoop epilogue_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;  // which matrices of a and b meet
};

// Two of one dtype, and the output of it.
inline void check_factors(const Node& node, const char* first, const char* second) {
  check_counts(node, 2, 2);
  check_real(node, first, node.inputs[0]);
  check_same_dtype(node, second, node.inputs[1], first, node.inputs[0]);
  check_same_dtype(node, "out", node.outputs[0], first, node.inputs[0]);
}

}  // namespace onnx_iron
