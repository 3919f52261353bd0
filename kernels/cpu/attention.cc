// Attention over cached keys and values.
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Elements from a sequence of a batch, a head and a row (or entry) to the next.
struct Strides {
  int64_t batch, head, row;
};

// (B, T, H, D), or (B, H, T, D) where heads come first.
Strides strides_of(int64_t rows, int64_t heads, int64_t width, bool heads_first) {
  const int64_t all = rows * heads * width;
  if (heads_first) return {all, rows * width, width};
  return {all, width, heads * width};
}

// A mask or a bias, (B, H, T, S), any of them 1 or missing in front: by how many elements it moves
// along each.
struct Further {
  bool given = false;
  int64_t size = 0;  // bytes of an element
  int64_t batch = 0, head = 0, row = 0, entry = 0;

  Further() = default;
  Further(const Operand& operand) : given(true), size(size_of(operand.dtype)) {
    int64_t stride = 1;
    int64_t* const steps[] = {&entry, &row, &head, &batch};
    for (size_t i = 0; i < operand.shape.size(); ++i) {
      const int64_t dim = operand.shape[operand.shape.size() - 1 - i];
      *steps[i] = dim == 1 ? 0 : stride;
      stride *= dim;
    }
  }

  const char* at(const void* data, int64_t b, int64_t h, int64_t t, int64_t s) const {
    return static_cast<const char*>(data) + (b * batch + h * head + t * row + s * entry) * size;
  }
};

// Every row's keys go in chunks of kAttentionChunk; chunks are folded in ascending order. So a
// row's result depends neither on the other rows nor on how the work is divided: by chunks too
// where there are few rows, else by blocks of rows, which pack a chunk once for all of them.
class Attention : public Kernel {
 public:
  explicit Attention(const Node& node)
      : dtype_(node.inputs[0].dtype),
        loops_(loops().of(dtype_)),
        size_(size_of(dtype_)),
        softcap_(node.attributes.real("softcap", 0.0f)),
        window_(node.attributes.integer("window", 0)),
        causal_(flag_of(node, "is_causal", false)),
        cache_heads_first_(flag_of(node, "cache_heads_first", false)) {
    const Shape &query = node.inputs[0].shape, &key = node.inputs[1].shape;
    const bool heads_first = flag_of(node, "query_heads_first", false);
    const size_t lead = query.size() - 3;
    batch_ = lead == 0 ? 1 : query[0];
    times_ = query[lead + (heads_first ? 1 : 0)];
    heads_ = query[lead + (heads_first ? 0 : 1)];
    keys_ = key[lead + (cache_heads_first_ ? 1 : 0)];
    groups_ = key[lead + (cache_heads_first_ ? 0 : 1)];
    width_ = query.back();
    value_width_ = node.inputs[2].shape.back();
    query_ = strides_of(times_, heads_, width_, heads_first);
    result_ = strides_of(times_, heads_, value_width_, heads_first);
    key_ = strides_of(keys_, groups_, width_, cache_heads_first_);
    value_ = strides_of(keys_, groups_, value_width_, cache_heads_first_);
    rows_ = times_ * heads_ / groups_;
    const double otherwise = 1 / std::sqrt(static_cast<double>(width_));
    scale_ = node.attributes.real("scale", static_cast<float>(otherwise));
    for (size_t i = 3; i < 9; ++i) has_[i] = node.has_input(i);
    each_placed_ = has_[3] && element_count(node.inputs[3].shape) > 1;
    each_bounded_ = has_[4] && element_count(node.inputs[4].shape) > 1;
    if (has_[5]) mask_ = Further(node.inputs[5]);
    if (has_[6]) bias_ = Further(node.inputs[6]);
    for (size_t i = 7; i < 9; ++i) {
      if (has_[i]) wide_[i] = node.inputs[i].dtype == DType::kFloat32;
    }
    // Records of all chunks are kept at once where that is not too much.
    const int64_t all = units() * chunks() * rows_ * record();
    few_ = rows_ <= kFewRows;
    by_chunks_ = few_ && all <= kMostRecords;
  }

  size_t scratch_bytes() const override {
    const int64_t all_rows = units() * rows_;
    if (!few_) return sizeof(float) * slots() * slot_elements();
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

 private:
  // At most this many rows of a group are "few".
  static constexpr int64_t kFewRows = 16;
  // Rows of a block: more share a packed chunk, fewer make more tasks.
  static constexpr int64_t kLeastRows = 64, kMostRows = 192;
  // Blocks that are worked on at once, at the most; each has scratch of its own.
  static constexpr int64_t kSlots = 16;
  static constexpr int64_t kMostRecords = int64_t{1} << 22;

  // A head's part of a sequence's cache.
  struct Unit {
    int64_t batch, group;
    int64_t position, bound;  // of the sequence
  };

  int64_t units() const { return batch_ * groups_; }
  int64_t chunks() const { return (keys_ + kAttentionChunk - 1) / kAttentionChunk; }
  int64_t record() const { return attention_record(value_width_); }
  int64_t heads_of_group() const { return heads_ / groups_; }

  int64_t blocks() const {
    const int64_t wanted = std::min(kSlots / units(), rows_ / kLeastRows);
    return std::max({int64_t{1}, wanted, (rows_ + kMostRows - 1) / kMostRows});
  }
  int64_t block_rows() const {
    const int64_t even = (rows_ + blocks() - 1) / blocks();
    return (even + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  }
  int64_t slots() const { return std::min(kSlots, units() * blocks()); }
  int64_t slot_elements() const {
    return attention_packed_keys(width_) + attention_packed_values(value_width_) +
           block_rows() * (padded(width_) + record()) + kAttentionTile * record();
  }

  int64_t number(const Buffers& buffers, size_t input, bool each, int64_t b,
                 int64_t otherwise) const {
    if (!has_[input]) return otherwise;
    return static_cast<const int32_t*>(buffers.inputs[input])[each ? b : 0];
  }

  void check_places(const Buffers& buffers) const {
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t position = number(buffers, 3, each_placed_, b, 0);
      const int64_t kv_rows = number(buffers, 4, each_bounded_, b, keys_);
      if (position < 0 || position >= keys_) {
        throw std::invalid_argument(text("Attention: position is ", position, ", expected 0..",
                                         keys_ - 1, " (key has ", keys_, " rows)"));
      }
      if (kv_rows < 1 || kv_rows > keys_) {
        throw std::invalid_argument(text("Attention: kv_rows is ", kv_rows, ", expected 1..", keys_,
                                         " (key has ", keys_, " rows)"));
      }
    }
  }

  Unit unit_of(const Buffers& buffers, int64_t unit) const {
    const int64_t b = unit / groups_;
    return {b, unit % groups_, number(buffers, 3, each_placed_, b, 0),
            number(buffers, 4, each_bounded_, b, keys_)};
  }

  // Rows of a group are ordered by time, then by head.
  int64_t time_of(int64_t row) const { return row / heads_of_group(); }
  int64_t head_of(const Unit& unit, int64_t row) const {
    return unit.group * heads_of_group() + row % heads_of_group();
  }
  int64_t offset_of(const Strides& strides, const Unit& unit, int64_t row) const {
    return unit.batch * strides.batch + head_of(unit, row) * strides.head +
           time_of(row) * strides.row;
  }

  // The first key that a row sees by its place, and the one after the last.
  int64_t low_of(const Unit& unit, int64_t row) const {
    if (window_ == 0) return 0;
    return std::max<int64_t>(0, unit.position + time_of(row) + 1 - window_);
  }
  int64_t high_of(const Unit& unit, int64_t row) const {
    if (!causal_) return unit.bound;
    return std::min(unit.bound, unit.position + time_of(row) + 1);
  }

  float real_at(const Buffers& buffers, size_t input, int64_t i) const {
    float value = 0.0f;
    const char* from = static_cast<const char*>(buffers.inputs[input]);
    if (wide_[input]) return reinterpret_cast<const float*>(from)[i];
    loops_.widen(from + i * size_, &value, 1);
    return value;
  }

  AttentionChunk chunk_of(const Buffers& buffers, const Unit& unit, int64_t chunk) const {
    const int64_t from = chunk * kAttentionChunk;
    const auto at = [&](size_t input, const Strides& strides) {
      return static_cast<const char*>(buffers.inputs[input]) +
             (unit.batch * strides.batch + unit.group * strides.head + from * strides.row) * size_;
    };
    return {
        .key = at(1, key_),
        .value = at(2, value_),
        .key_stride = key_.row,
        .value_stride = value_.row,
        .key_width = width_,
        .value_width = value_width_,
        .scale = scale_,
        .softcap = softcap_,
        .float_bias = bias_.size == 4,
    };
  }

  AttentionRow row_of(const Buffers& buffers, const Unit& unit, int64_t row, int64_t chunk) const {
    const int64_t from = chunk * kAttentionChunk, t = time_of(row), h = head_of(unit, row);
    AttentionRow made{};
    made.first = std::clamp<int64_t>(low_of(unit, row) - from, 0, kAttentionChunk);
    made.last = std::clamp<int64_t>(high_of(unit, row) - from, 0, kAttentionChunk);
    if (made.first >= made.last) return made;
    if (mask_.given) {
      const char* at = mask_.at(buffers.inputs[5], unit.batch, h, t, from);
      if (mask_.entry != 0) {
        made.mask = reinterpret_cast<const uint8_t*>(at);
      } else if (*at == 0) {
        made.last = made.first;
      }
    }
    if (bias_.given) {
      const char* at = bias_.at(buffers.inputs[6], unit.batch, h, t, from);
      if (bias_.entry != 0) {
        made.bias = at;
      } else {
        if (bias_.size == 4) {
          made.offset = *reinterpret_cast<const float*>(at);
        } else {
          loops_.widen(at, &made.offset, 1);
        }
        if (made.offset == kMinusInfinity) made.last = made.first;
      }
    }
    if (has_[7]) {
      made.slope = real_at(buffers, 7, h);
      made.away = static_cast<float>(from - unit.position - t);
    }
    return made;
  }

  void widen_query(const Buffers& buffers, const Unit& unit, int64_t row, float* to) const {
    const char* from = static_cast<const char*>(buffers.inputs[0]);
    loops_.widen(from + offset_of(query_, unit, row) * size_, to, width_);
    std::fill(to + width_, to + padded(width_), 0.0f);
  }

  // A sink is a score without a value.
  void begin(const Buffers& buffers, const Unit& unit, int64_t row, float* result) const {
    std::fill(result, result + record(), 0.0f);
    float* largest = result + padded(value_width_);
    largest[0] = has_[8] ? real_at(buffers, 8, head_of(unit, row)) : kMinusInfinity;
    largest[1] = has_[8] ? 1.0f : 0.0f;
  }

  void finish(const Buffers& buffers, const Unit& unit, int64_t row, float* result) const {
    const float* largest = result + padded(value_width_);
    if (*largest != kMinusInfinity) loops().floats.divide(result, largest[1], value_width_);
    char* out = static_cast<char*>(buffers.outputs[0]);
    loops_.narrow(result, out + offset_of(result_, unit, row) * size_, value_width_);
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
        for (int64_t r = 0; r < rows; ++r) {
          loops().floats.attention_fold(results + (index * rows_ + row + r) * record(),
                                        further + r * record(), value_width_);
        }
      }
    }
    for (int64_t row = 0; row < rows_; ++row) {
      finish(buffers, unit, row, results + (index * rows_ + row) * record());
    }
  }

  // The chunks that any row of any unit sees.
  std::pair<int64_t, int64_t> chunks_seen(const Buffers& buffers) const {
    int64_t low = keys_, high = 0;
    for (int64_t b = 0; b < batch_; ++b) {
      const Unit unit = unit_of(buffers, b * groups_);
      low = std::min(low, low_of(unit, 0));
      high = std::max(high, high_of(unit, rows_ - 1));
    }
    return chunks_between(low, high);
  }

  static std::pair<int64_t, int64_t> chunks_between(int64_t low, int64_t high) {
    if (low >= high) return {0, 0};
    return {low / kAttentionChunk, (high + kAttentionChunk - 1) / kAttentionChunk};
  }

  void run_blocks(const Buffers& buffers, Threads& threads) const {
    const int64_t tasks = units() * blocks();
    threads.parallel(static_cast<size_t>(slots()), [&](size_t index) {
      const int64_t slot = static_cast<int64_t>(index);
      float* scratch = static_cast<float*>(buffers.scratch) + slot * slot_elements();
      // Later rows may see more keys: they come first.
      for (int64_t i = slot; i < tasks; i += slots()) {
        const int64_t block = blocks() - 1 - i / units();
        const int64_t first = block * block_rows();
        const int64_t last = std::min(rows_, first + block_rows());
        if (first < last) run_block(buffers, unit_of(buffers, i % units()), first, last, scratch);
      }
    });
  }

  void run_block(const Buffers& buffers, const Unit& unit, int64_t first, int64_t last,
                 float* packed_keys) const {
    const FloatLoops& floats = loops().floats;
    float* packed_values = packed_keys + attention_packed_keys(width_);
    float* query = packed_values + attention_packed_values(value_width_);
    float* results = query + block_rows() * padded(width_);
    float* further = results + block_rows() * record();
    for (int64_t row = first; row < last; ++row) {
      widen_query(buffers, unit, row, query + (row - first) * padded(width_));
      begin(buffers, unit, row, results + (row - first) * record());
    }
    std::fill(query + (last - first) * padded(width_), results, 0.0f);
    const auto [low, high] = chunks_between(low_of(unit, first), high_of(unit, last - 1));
    for (int64_t chunk = low; chunk < high; ++chunk) {
      const AttentionChunk place = chunk_of(buffers, unit, chunk);
      const int64_t keys = high_of(unit, last - 1) - chunk * kAttentionChunk;
      loops_.attention_pack(place, std::min(keys, kAttentionChunk), packed_keys, packed_values);
      for (int64_t row = first; row < last; row += kAttentionTile) {
        const int64_t rows = std::min(kAttentionTile, last - row);
        AttentionRow seen[kAttentionTile];
        bool any = false;
        for (int64_t r = 0; r < rows; ++r) {
          seen[r] = row_of(buffers, unit, row + r, chunk);
          any |= seen[r].first < seen[r].last;
        }
        if (!any) continue;
        floats.attention_tile(place, packed_keys, packed_values,
                              query + (row - first) * padded(width_), seen, rows, further);
        for (int64_t r = 0; r < rows; ++r) {
          floats.attention_fold(results + (row - first + r) * record(), further + r * record(),
                                value_width_);
        }
      }
    }
    for (int64_t row = first; row < last; ++row) {
      finish(buffers, unit, row, results + (row - first) * record());
    }
  }

  DType dtype_;
  const TypedLoops& loops_;
  int64_t size_;
  float scale_, softcap_;
  int64_t window_;  // 0: none
  bool causal_, cache_heads_first_;
  int64_t batch_, times_, heads_, width_, keys_, groups_, value_width_;
  int64_t rows_;  // query rows of a group, over all its heads
  Strides query_, result_, key_, value_;
  bool has_[9] = {}, wide_[9] = {};
  bool each_placed_ = false, each_bounded_ = false;  // a number for each sequence
  Further mask_, bias_;
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
  if (node.has_input(4)) check_place(node, "kv_rows", node.inputs[4], query.shape);
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
