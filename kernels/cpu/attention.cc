// Attention over cached keys and values.
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// Every row's keys go in chunks of kAttentionChunk; chunks are folded in ascending order. So a
// row's result depends neither on the other rows nor on how the work is divided: by chunks too
// where there are few rows, else by rows.
class Attention : public Kernel {
 public:
  Attention(const Node& node, float scale, bool causal)
      : loops_(loops().of(node.inputs[0].dtype)),
        size_(size_of(node.inputs[0].dtype)),
        times_(node.inputs[0].shape[0]),
        heads_(node.inputs[0].shape[1]),
        width_(node.inputs[0].shape[2]),
        keys_(node.inputs[1].shape[0]),
        groups_(node.inputs[1].shape[1]),
        value_width_(node.inputs[2].shape[2]),
        rows_(times_ * heads_ / groups_),
        scale_(scale),
        causal_(causal),
        placed_(node.has_input(3)),
        bounded_(node.has_input(4)),
        by_chunks_(rows_ <= kFewRows) {}

  size_t scratch_bytes() const override {
    const int64_t partials = by_chunks_ ? groups_ * chunks() * rows_ : tasks() * kAttentionRows;
    const int64_t all_rows = groups_ * rows_;
    return sizeof(float) * (all_rows * padded(width_) + (all_rows + partials) * record());
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const int64_t position = scalar_at(input_or_null(buffers, placed_, 3), 0);
    const int64_t kv_rows = scalar_at(input_or_null(buffers, bounded_, 4), keys_);
    if (position < 0 || position >= keys_) {
      throw std::invalid_argument(text("Attention: position is ", position, ", expected 0..",
                                       keys_ - 1, " (key has ", keys_, " rows)"));
    }
    if (kv_rows < 1 || kv_rows > keys_) {
      throw std::invalid_argument(text("Attention: kv_rows is ", kv_rows, ", expected 1..", keys_,
                                       " (key has ", keys_, " rows)"));
    }
    if (rows_ == 0) return;
    float* scratch = static_cast<float*>(buffers.scratch);
    Call call{buffers, kv_rows, position, scratch, scratch + groups_ * rows_ * padded(width_),
              nullptr};
    call.partials = call.results + groups_ * rows_ * record();
    parallel_rows(threads, groups_ * rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) widen_query(call, row / rows_, row % rows_);
    });
    if (by_chunks_) {
      run_by_chunks(call, threads);
    } else {
      run_by_rows(call, threads);
    }
  }

 private:
  // At most this many rows of a group are "few".
  static constexpr int64_t kFewRows = 16;
  // Rows of a task that takes all chunks.
  static constexpr int64_t kTaskRows = 48;

  struct Call {
    const Buffers& buffers;
    int64_t kv_rows, position;
    float* query;     // groups x rows x padded(D)
    float* results;   // groups x rows records
    float* partials;  // records of chunks
  };

  int64_t chunks() const { return (keys_ + kAttentionChunk - 1) / kAttentionChunk; }
  int64_t blocks() const { return (rows_ + kTaskRows - 1) / kTaskRows; }
  int64_t tasks() const { return groups_ * blocks(); }
  int64_t record() const { return attention_record(value_width_); }

  // Rows of a group are ordered by time, then by head.
  int64_t heads_of_group() const { return heads_ / groups_; }
  int64_t row_offset(int64_t group, int64_t row) const {
    return row / heads_of_group() * heads_ + group * heads_of_group() + row % heads_of_group();
  }

  int64_t limit_of(const Call& call, int64_t row) const {
    if (!causal_) return call.kv_rows;
    return std::min(call.kv_rows, call.position + row / heads_of_group() + 1);
  }

  void widen_query(const Call& call, int64_t group, int64_t row) const {
    float* to = call.query + (group * rows_ + row) * padded(width_);
    const char* from = static_cast<const char*>(call.buffers.inputs[0]);
    loops_.widen(from + row_offset(group, row) * width_ * size_, to, width_);
    std::fill(to + width_, to + padded(width_), 0.0f);
  }

  // Rows first.. of a group over one chunk, to records that follow each other.
  void compute(const Call& call, int64_t group, int64_t chunk, int64_t first, int64_t rows,
               float* records) const {
    const int64_t from = chunk * kAttentionChunk;
    int64_t counts[kAttentionRows];
    for (int64_t r = 0; r < rows; ++r) {
      counts[r] = std::clamp<int64_t>(limit_of(call, first + r) - from, 0, kAttentionChunk);
    }
    const char* key = static_cast<const char*>(call.buffers.inputs[1]);
    const char* value = static_cast<const char*>(call.buffers.inputs[2]);
    const AttentionChunk place{
        .key = key + (from * groups_ + group) * width_ * size_,
        .value = value + (from * groups_ + group) * value_width_ * size_,
        .key_stride = groups_ * width_,
        .value_stride = groups_ * value_width_,
        .key_width = width_,
        .value_width = value_width_,
        .scale = scale_,
    };
    loops_.attention(place, call.query + (group * rows_ + first) * padded(width_), counts, rows,
                     records);
  }

  // A row's result takes in a chunk's, if the row sees any of its keys.
  void fold(const Call& call, int64_t group, int64_t row, int64_t chunk, float* partial) const {
    if (chunk * kAttentionChunk >= limit_of(call, row)) return;
    float* result = call.results + (group * rows_ + row) * record();
    if (chunk == 0) {
      std::copy(partial, partial + record(), result);
      return;
    }
    loops().floats.attention_fold(result, partial, value_width_);
  }

  void finish(const Call& call, int64_t group, int64_t row) const {
    float* result = call.results + (group * rows_ + row) * record();
    loops().floats.divide(result, result[padded(value_width_) + 1], value_width_);
    char* out = static_cast<char*>(call.buffers.outputs[0]);
    loops_.narrow(result, out + row_offset(group, row) * value_width_ * size_, value_width_);
  }

  void run_by_chunks(const Call& call, Threads& threads) const {
    const int64_t seen = (limit_of(call, rows_ - 1) + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t work = kAttentionChunk * rows_ * (width_ + value_width_);
    parallel_ranges(threads, groups_ * seen, 2 * kLightGrain / std::max<int64_t>(work, 1), 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        for (int64_t row = 0; row < rows_; row += kAttentionRows) {
                          compute(call, i % groups_, i / groups_, row,
                                  std::min(kAttentionRows, rows_ - row),
                                  call.partials + (i * rows_ + row) * record());
                        }
                      }
                    });
    for (int64_t group = 0; group < groups_; ++group) {
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t chunk = 0; chunk < seen; ++chunk) {
          const int64_t at = (chunk * groups_ + group) * rows_ + row;
          fold(call, group, row, chunk, call.partials + at * record());
        }
        finish(call, group, row);
      }
    }
  }

  void run_by_rows(const Call& call, Threads& threads) const {
    threads.parallel(tasks(), [&](size_t index) {
      const int64_t task = static_cast<int64_t>(index);
      const int64_t group = task % groups_, block = task / groups_;
      const int64_t begin = rows_ * block / blocks(), end = rows_ * (block + 1) / blocks();
      float* partials = call.partials + task * kAttentionRows * record();
      const int64_t seen = (limit_of(call, end - 1) + kAttentionChunk - 1) / kAttentionChunk;
      for (int64_t chunk = 0; chunk < seen; ++chunk) {
        for (int64_t row = begin; row < end; row += kAttentionRows) {
          const int64_t rows = std::min(kAttentionRows, end - row);
          if (chunk * kAttentionChunk >= limit_of(call, row + rows - 1)) continue;
          compute(call, group, chunk, row, rows, partials);
          for (int64_t r = 0; r < rows; ++r) {
            fold(call, group, row + r, chunk, partials + r * record());
          }
        }
      }
      for (int64_t row = begin; row < end; ++row) finish(call, group, row);
    });
  }

  const TypedLoops& loops_;
  int64_t size_, times_, heads_, width_, keys_, groups_, value_width_;
  int64_t rows_;  // query rows of a group, over all its heads
  float scale_;
  bool causal_, placed_, bounded_, by_chunks_;
};

std::vector<Shape> attention_shapes(const Node& node) {
  check_inputs(node, 3, 5);
  const Operand &query = node.inputs[0], &key = node.inputs[1], &value = node.inputs[2];
  require(query.shape.size() == 3, node, "query has shape ", text_of(query.shape),
          ", expected (T, H, D)");
  const int64_t heads = query.shape[1], width = query.shape[2];
  require(key.shape.size() == 3 && key.shape[0] > 0 && key.shape[1] > 0 && key.shape[2] == width,
          node, "key has shape ", text_of(key.shape), ", expected (S, G, ", width,
          ") with S and G > 0 (query has shape ", text_of(query.shape), ")");
  const int64_t groups = key.shape[1];
  require(heads % groups == 0, node, "query has ", heads, " heads, expected a multiple of ", groups,
          " (key's)");
  require(value.shape.size() == 3 && value.shape[0] == key.shape[0] && value.shape[1] == groups,
          node, "value has shape ", text_of(value.shape), ", expected (", key.shape[0], ", ",
          groups, ", Dv) (key has shape ", text_of(key.shape), ")");
  return {{query.shape[0], heads, value.shape[2]}};
}

std::unique_ptr<Kernel> make_attention(const Node& node) {
  check_counts(node, 3, 5);
  const Operand& query = node.inputs[0];
  check_real(node, "query", query);
  check_same_dtype(node, "key", node.inputs[1], "query", query);
  check_same_dtype(node, "value", node.inputs[2], "query", query);
  const Shape expected = attention_shapes(node)[0];
  if (node.has_input(3)) check_scalar(node, "position", node.inputs[3]);
  if (node.has_input(4)) check_scalar(node, "kv_rows", node.inputs[4]);
  check_same_dtype(node, "out", node.outputs[0], "query", query);
  check_shape(node, "out", node.outputs[0], expected, " (query's rows and heads, value's width)");
  const float otherwise = static_cast<float>(1 / std::sqrt(static_cast<double>(query.shape[2])));
  return std::make_unique<Attention>(node, node.attributes.real("scale", otherwise),
                                     flag_of(node, "is_causal", false));
}

const Registration kAttention("Attention", make_attention, attention_shapes);

}  // namespace
}  // namespace onnx_iron
