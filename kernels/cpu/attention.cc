// Attention over cached keys and values.
#include <atomic>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

// Every row's keys go in chunks of kAttentionChunk; chunks are folded in ascending order. So a
// row's result depends neither on the other rows nor on how the work is divided: by chunks too
// where there are few rows, else by blocks of rows, which pack a chunk once for all of them.
class Attention : public Kernel, AttentionRows {
 public:
  explicit Attention(const Node& node) : AttentionRows(node) {
    // Records of all chunks are kept at once where that is not too much.
    const int64_t all = units() * chunks() * rows_ * record();
    few_ = rows_ <= kFewRows;
    by_chunks_ = few_ && all <= kMostRecords;
  }

  size_t scratch_bytes() const override {
    const int64_t all_rows = units() * rows_;
    if (!few_) return batch_ == 0 ? 0 : sizeof(float) * kSlots * slot_elements();
    const int64_t partials = by_chunks_ ? chunks() * all_rows : units() * kAttentionRows;
    return sizeof(float) * (all_rows * (padded(width_) + record()) + partials * record());
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    check_places(buffers);
    if (batch_ == 0 || rows_ == 0) return;
    if (few_) {
      run_few(buffers, threads);
    } else {
      run_blocks(buffers, threads);
    }
  }

  Work work(const Buffers& buffers, const Work& declared) const override {
    return work_seen(buffers, declared);
  }

 private:
  // At most this many rows of a group are "few".
  static constexpr int64_t kFewRows = 16;
  // Rows of a block: more share a packed chunk, fewer make more tasks.
  static constexpr int64_t kLeastRows = 64, kMostRows = 512;
  // Blocks that are worked on at once, at the most; each has scratch of its own.
  static constexpr int64_t kSlots = 16;
  // Blocks for each thread, which differ in what they take.
  static constexpr int64_t kBlocksPerThread = 8;
  static constexpr int64_t kMostRecords = int64_t{1} << 22;

  // Rows of a block, in whole tiles. One thread packs no chunk twice for the sake of others.
  int64_t block_rows(int64_t threads) const {
    const int64_t enough = threads == 1 ? 1 : threads * kBlocksPerThread / units();
    const int64_t blocks = std::max(
        {int64_t{1}, std::min(enough, rows_ / kLeastRows), (rows_ + kMostRows - 1) / kMostRows});
    const int64_t even = (rows_ + blocks - 1) / blocks;
    return (even + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  }
  int64_t slot_elements() const {
    return attention_packed_keys(width_) + attention_packed_values(value_width_) +
           block_rows(1) * (padded(width_) + record()) + kAttentionTile * record();
  }

  // Up to kAttentionRows rows over a chunk as it is in memory.
  void compute(const Buffers& buffers, const Unit& unit, int64_t chunk, int64_t first, int64_t rows,
               const float* query, float* records) const {
    AttentionRow seen[kAttentionRows];
    for (int64_t r = 0; r < rows; ++r) seen[r] = row_of(buffers, unit, first + r, chunk);
    loops_.attention(chunk_of(buffers, unit, chunk), query + first * padded(width_), seen, rows,
                     records);
  }

  void run_few(const Buffers& buffers, Threads& threads) const {
    float* queries = static_cast<float*>(buffers.scratch);
    float* results = queries + units() * rows_ * padded(width_);
    float* partials = results + units() * rows_ * record();
    parallel_rows(threads, units() * rows_, width_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        widen_query(buffers, unit_of(buffers, i / rows_), i % rows_, queries + i * padded(width_));
      }
    });
    const int64_t work = kAttentionChunk * rows_ * (width_ + value_width_);
    const int64_t grain = 2 * kLightGrain / std::max<int64_t>(work, 1);
    const auto [low, high] = chunks_seen(buffers);
    if (by_chunks_) {
      // Chunks of one row's heads are together in memory, or those of one head's rows.
      const int64_t seen = high - low;
      parallel_ranges(threads, units() * seen, grain, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t unit = cache_heads_first_ ? i / seen : i % units();
          const int64_t chunk = low + (cache_heads_first_ ? i % seen : i / units());
          for (int64_t row = 0; row < rows_; row += kAttentionRows) {
            compute(buffers, unit_of(buffers, unit), chunk, row,
                    std::min(kAttentionRows, rows_ - row), queries + unit * rows_ * padded(width_),
                    partials + ((unit * chunks() + chunk) * rows_ + row) * record());
          }
        }
      });
    }
    parallel_ranges(threads, units(), by_chunks_ ? units() : grain, 1,
                    [&](int64_t first, int64_t last) {
                      for (int64_t unit = first; unit < last; ++unit) {
                        fold_few(buffers, unit, low, high, queries, results, partials);
                      }
                    });
  }

  // The chunks of a unit in order, computed before or now.
  void fold_few(const Buffers& buffers, int64_t index, int64_t low, int64_t high,
                const float* queries, float* results, float* partials) const {
    const Unit unit = unit_of(buffers, index);
    for (int64_t row = 0; row < rows_; ++row) {
      begin(buffers, unit, row, results + (index * rows_ + row) * record());
    }
    for (int64_t chunk = low; chunk < high; ++chunk) {
      for (int64_t row = 0; row < rows_; row += kAttentionRows) {
        const int64_t rows = std::min(kAttentionRows, rows_ - row);
        float* further = partials + index * kAttentionRows * record();
        if (by_chunks_) {
          further = partials + ((index * chunks() + chunk) * rows_ + row) * record();
        } else {
          compute(buffers, unit, chunk, row, rows, queries + index * rows_ * padded(width_),
                  further);
        }
        loops().floats.attention_fold(results + (index * rows_ + row) * record(), further, rows,
                                      value_width_);
      }
    }
    for (int64_t row = 0; row < rows_; ++row) {
      finish(buffers, unit, row, results + (index * rows_ + row) * record());
    }
  }

  void run_blocks(const Buffers& buffers, Threads& threads) const {
    const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(threads.count()));
    const int64_t height = block_rows(count), blocks = (rows_ + height - 1) / height;
    const int64_t tasks = units() * blocks;
    std::atomic<int64_t> next{0};
    threads.parallel(static_cast<size_t>(std::min({count, kSlots, tasks})), [&](size_t slot) {
      float* scratch = static_cast<float*>(buffers.scratch) + slot * slot_elements();
      for (int64_t i = next++; i < tasks; i = next++) {
        // Later rows may see more keys: they come first.
        const int64_t first = (blocks - 1 - i / units()) * height;
        const int64_t last = std::min(rows_, first + height);
        run_block(buffers, unit_of(buffers, i % units()), first, last, scratch);
      }
    });
  }

  void run_block(const Buffers& buffers, const Unit& unit, int64_t first, int64_t last,
                 float* packed_keys) const {
    const FloatLoops& floats = loops().floats;
    float* packed_values = packed_keys + attention_packed_keys(width_);
    float* query = packed_values + attention_packed_values(value_width_);
    float* further = query + block_rows(1) * padded(width_);
    float* results = further + kAttentionTile * record();
    const int64_t bound = high_of(unit, last - 1);
    const auto [low, high] = chunks_between(low_of(unit, first), bound);
    for (int64_t chunk = low; chunk < high; ++chunk) {
      const AttentionChunk place = chunk_of(buffers, unit, chunk);
      const int64_t from = chunk * kAttentionChunk;
      loops_.attention_pack(place, std::min(bound - from, kAttentionChunk), packed_keys,
                            packed_values);
      const int64_t tiles = (last - first + kAttentionTile - 1) / kAttentionTile;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = first + tile * kAttentionTile;
        const int64_t rows = std::min(kAttentionTile, last - row);
        float* result = results + (row - first) * record();
        float* queries = query + (row - first) * padded(width_);
        // The next tile's queries and a share of the next chunk, while this tile is computed.
        if (chunk == low) {
          for (int64_t r = row + rows; r < std::min(last, row + 2 * kAttentionTile); ++r) {
            ask_for_query(buffers, unit, r);
          }
          for (int64_t r = 0; r < rows; ++r) {
            widen_query(buffers, unit, row + r, queries + r * padded(width_));
          }
          std::fill(queries + rows * padded(width_), queries + kAttentionTile * padded(width_),
                    0.0f);
        }
        const int64_t next = from + kAttentionChunk, left = std::min(bound - next, kAttentionChunk);
        for (int64_t j = left * tile / tiles; j < left * (tile + 1) / tiles; ++j) {
          ask_for_entry(buffers, unit, next + j);
        }
        AttentionRow seen[kAttentionTile];
        const bool any = see(buffers, unit, row, rows, chunk, seen);
        // What a record takes in first is what it holds then.
        const bool fresh = any && chunk == low && !has_[8];
        for (int64_t r = 0; r < rows && chunk == low && !fresh; ++r) {
          begin(buffers, unit, row + r, result + r * record());
        }
        if (any) {
          floats.attention_tile(place, packed_keys, packed_values, queries, seen, rows,
                                fresh ? result : further);
          if (!fresh) floats.attention_fold(result, further, rows, value_width_);
        }
        if (chunk + 1 < high) continue;
        for (int64_t r = 0; r < rows; ++r) finish(buffers, unit, row + r, result + r * record());
      }
    }
    if (low < high) return;
    for (int64_t row = first; row < last; ++row) {
      begin(buffers, unit, row, results);
      finish(buffers, unit, row, results);
    }
  }

  // What rows of a tile see of a chunk, and whether that is anything.
  bool see(const Buffers& buffers, const Unit& unit, int64_t row, int64_t rows, int64_t chunk,
           AttentionRow* seen) const {
    const bool alike = !causal_ && !mask_.given && !bias_.given;
    bool any = false;
    for (int64_t r = 0; r < rows; ++r) {
      seen[r] = alike && r > 0 ? seen[0] : row_of(buffers, unit, row + r, chunk);
      any |= seen[r].first < seen[r].last;
    }
    return any;
  }

  bool few_, by_chunks_;
};

// Heads, rows (or entries) and width of an operand, after its batch.
struct Sizes {
  int64_t rows, heads, width;
};

Sizes sizes_of(const Shape& shape, bool heads_first) {
  const size_t lead = shape.size() - 3;
  const int64_t first = shape[lead], second = shape[lead + 1];
  return heads_first ? Sizes{second, first, shape.back()} : Sizes{first, second, shape.back()};
}

std::vector<Shape> attention_shapes(const Node& node) {
  check_inputs(node, 3, 9);
  const bool query_first = flag_of(node, "query_heads_first", false);
  const bool cache_first = flag_of(node, "cache_heads_first", false);
  const Shape &query = node.inputs[0].shape, &key = node.inputs[1].shape;
  const Shape& value = node.inputs[2].shape;
  require(query.size() == 3 || query.size() == 4, node, "query has shape ", text_of(query),
          ", expected (T, H, D) or (B, T, H, D)");
  const auto [rows, heads, width] = sizes_of(query, query_first);
  const bool same_rank = key.size() == query.size() && (key.size() == 3 || key[0] == query[0]);
  const auto [entries, groups, key_width] = same_rank ? sizes_of(key, cache_first) : Sizes{0, 0, 0};
  require(same_rank && entries > 0 && groups > 0 && key_width == width, node, "key has shape ",
          text_of(key), ", expected ", query.size() == 4 ? text("(", query[0], ", ") : "(",
          cache_first ? "G, S, " : "S, G, ", width, ") with S and G > 0 (query has shape ",
          text_of(query), ")");
  require(heads % groups == 0, node, "query has ", heads, " heads, expected a multiple of ", groups,
          " (key's)");
  require(value.size() == key.size() && std::equal(key.begin(), key.end() - 1, value.begin()), node,
          "value has shape ", text_of(value), ", expected (",
          key.size() == 4 ? text(key[0], ", ") : "", key[key.size() - 3], ", ", key[key.size() - 2],
          ", Dv) (key has shape ", text_of(key), ")");
  Shape result = query;
  result.back() = value.back();
  return {result};
}

// (T, S), (H, T, S) or (B, H, T, S), any of them 1.
void check_further(const Node& node, const char* name, const Shape& given, const Shape& whole) {
  const size_t rank = given.size();
  bool fits = rank >= 2 && rank <= whole.size();
  for (size_t i = 0; fits && i < rank; ++i) {
    fits = given[i] == 1 || given[i] == whole[whole.size() - rank + i];
  }
  require(fits, node, name, " has shape ", text_of(given), ", expected ", text_of(whole),
          ", any of them 1, or without the first");
}

// A number of the call, or one for each sequence.
void check_place(const Node& node, const char* name, const Operand& operand, const Shape& query) {
  const bool each = query.size() == 4 && operand.shape == Shape{query[0]};
  if (!each || operand.dtype != DType::kInt32) check_scalar(node, name, operand);
}

std::unique_ptr<Kernel> make_attention(const Node& node) {
  check_counts(node, 3, 9);
  const Operand& query = node.inputs[0];
  check_real(node, "query", query);
  check_same_dtype(node, "key", node.inputs[1], "query", query);
  check_same_dtype(node, "value", node.inputs[2], "query", query);
  const Shape expected = attention_shapes(node)[0];
  const Sizes rows = sizes_of(query.shape, flag_of(node, "query_heads_first", false));
  const Sizes keys = sizes_of(node.inputs[1].shape, flag_of(node, "cache_heads_first", false));
  Shape whole{rows.heads, rows.rows, keys.rows};
  if (query.shape.size() == 4) whole.insert(whole.begin(), query.shape[0]);
  if (node.has_input(3)) check_place(node, "position", node.inputs[3], query.shape);
  if (flag_of(node, "from_lengths", false)) {
    require(node.has_input(4) && query.shape.size() == 4, node, "from_lengths without kv_rows");
    check_dtype(node, "kv_rows", node.inputs[4], {DType::kInt32, DType::kInt64});
    check_shape(node, "kv_rows", node.inputs[4], {query.shape[0]}, " (query's batch)");
  } else if (node.has_input(4)) {
    check_place(node, "kv_rows", node.inputs[4], query.shape);
  }
  if (node.has_input(5)) {
    check_dtype(node, "mask", node.inputs[5], {DType::kBool});
    check_further(node, "mask", node.inputs[5].shape, whole);
  }
  const char* const names[] = {"bias", "alibi", "sinks"};
  for (size_t i = 6; i < 9; ++i) {
    if (!node.has_input(i)) continue;
    check_dtype(node, names[i - 6], node.inputs[i], {query.dtype, DType::kFloat32});
    if (i == 6) {
      check_further(node, "bias", node.inputs[i].shape, whole);
    } else {
      check_shape(node, names[i - 6], node.inputs[i], {rows.heads}, " (query's heads)");
    }
  }
  const bool causal = flag_of(node, "is_causal", false);
  const float softcap = node.attributes.real("softcap", 0.0f);
  const int64_t window = node.attributes.integer("window", 0);
  require(softcap >= 0.0f && std::isfinite(softcap), node, "softcap is ", softcap,
          ", expected a finite number above 0");
  require(window >= 0, node, "window is ", window, ", expected 1 or more");
  require(causal || (window == 0 && !node.has_input(7)), node,
          "it has a window or alibi without is_causal");
  check_same_dtype(node, "out", node.outputs[0], "query", query);
  check_shape(node, "out", node.outputs[0], expected, " (query's rows and heads, value's width)");
  return std::make_unique<Attention>(node);
}

const Registration kAttention("Attention", make_attention, attention_shapes);

}  // namespace
}  // namespace onnx_iron
