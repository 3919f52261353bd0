// What the query rows of Attention see, and where they and their keys are.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"

namespace onnx_iron {

// Elements from a sequence of a batch, a head and a row (or entry) to the next.
struct Strides {
  int64_t batch, head, row;
};

// (B, T, H, D), or (B, H, T, D) where heads come first.
inline Strides strides_of(int64_t rows, int64_t heads, int64_t width, bool heads_first) {
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

class AttentionRows {
 protected:
  // A head's part of a sequence's cache.
  struct Unit {
    int64_t batch, group;
    int64_t position, bound;  // of the sequence
  };

  explicit AttentionRows(const Node& node)
      : loops_(loops().of(node.inputs[0].dtype)),
        size_(size_of(node.inputs[0].dtype)),
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
    group_heads_ = heads_ / groups_;
    rows_ = times_ * group_heads_;
    const double otherwise = 1 / std::sqrt(static_cast<double>(width_));
    scale_ = node.attributes.real("scale", static_cast<float>(otherwise));
    for (size_t i = 3; i < 9; ++i) has_[i] = node.has_input(i);
    each_placed_ = has_[3] && element_count(node.inputs[3].shape) > 1;
    each_bounded_ = has_[4] && element_count(node.inputs[4].shape) > 1;
    lengths_ = flag_of(node, "from_lengths", false);
    if (lengths_) each_placed_ = has_[3], each_bounded_ = true;
    long_lengths_ = has_[4] && node.inputs[4].dtype == DType::kInt64;
    otherwise_ = node.attributes.integer("past", 0);
    require(otherwise_ >= 0 && otherwise_ <= keys_, node, "past is ", otherwise_, ", expected 0..",
            keys_);
    empty_is_nan_ = flag_of(node, "empty_is_nan", false);
    if (has_[5]) mask_ = Further(node.inputs[5]);
    if (has_[6]) bias_ = Further(node.inputs[6]);
    for (size_t i = 7; i < 9; ++i) {
      if (has_[i]) wide_[i] = node.inputs[i].dtype == DType::kFloat32;
    }
  }

  int64_t units() const { return batch_ * groups_; }
  int64_t chunks() const { return (keys_ + kAttentionChunk - 1) / kAttentionChunk; }
  int64_t record() const { return attention_record(value_width_); }
  int64_t heads_of_group() const { return group_heads_; }

  int64_t bound_of(const Buffers& buffers, int64_t b) const {
    if (!has_[4]) return keys_;
    const int64_t i = each_bounded_ ? b : 0;
    if (long_lengths_) return static_cast<const int64_t*>(buffers.inputs[4])[i];
    return static_cast<const int32_t*>(buffers.inputs[4])[i];
  }

  int64_t position_of(const Buffers& buffers, int64_t b) const {
    if (has_[3]) return static_cast<const int32_t*>(buffers.inputs[3])[each_placed_ ? b : 0];
    return lengths_ ? bound_of(buffers, b) - times_ : otherwise_;
  }

  void check_places(const Buffers& buffers) const {
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t kv_rows = bound_of(buffers, b);
      const int64_t least = lengths_ ? 0 : 1;
      if (kv_rows < least || kv_rows > keys_) {
        throw std::invalid_argument(text("Attention: kv_rows is ", kv_rows, ", expected ", least,
                                         "..", keys_, " (key has ", keys_, " rows)"));
      }
      if (!has_[3]) continue;
      const int64_t position = position_of(buffers, b);
      if (position < 0 || position >= keys_) {
        throw std::invalid_argument(text("Attention: position is ", position, ", expected 0..",
                                         keys_ - 1, " (key has ", keys_, " rows)"));
      }
    }
  }

  Unit unit_of(const Buffers& buffers, int64_t unit) const {
    const int64_t b = unit / groups_;
    return {b, unit % groups_, position_of(buffers, b), bound_of(buffers, b)};
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

  // Rows of a (B, T, H, D) tensor are too far apart for the processor to see them coming.
  void ask_for_query(const Buffers& buffers, const Unit& unit, int64_t row) const {
    ask_for(buffers, 0, offset_of(query_, unit, row), width_);
  }
  void ask_for_entry(const Buffers& buffers, const Unit& unit, int64_t entry) const {
    const auto at = [&](const Strides& strides) {
      return unit.batch * strides.batch + unit.group * strides.head + entry * strides.row;
    };
    ask_for(buffers, 1, at(key_), width_);
    ask_for(buffers, 2, at(value_), value_width_);
  }
  void ask_for(const Buffers& buffers, size_t input, int64_t offset, int64_t width) const {
    constexpr int64_t kLine = 64;
    const char* from = static_cast<const char*>(buffers.inputs[input]) + offset * size_;
    for (int64_t at = 0; at < width * size_; at += kLine) __builtin_prefetch(from + at, 0, 2);
  }

  // A sink is a score without a value.
  void begin(const Buffers& buffers, const Unit& unit, int64_t row, float* result) const {
    std::fill(result, result + record(), 0.0f);
    float* largest = result + padded(value_width_);
    largest[0] = has_[8] ? real_at(buffers, 8, head_of(unit, row)) : kMinusInfinity;
    largest[1] = has_[8] ? 1.0f : 0.0f;
  }

  void finish(const Buffers& buffers, const Unit& unit, int64_t row, const float* result) const {
    const float* largest = result + padded(value_width_);
    const float total = *largest != kMinusInfinity || empty_is_nan_ ? largest[1] : 1.0f;
    char* out = static_cast<char*>(buffers.outputs[0]);
    loops_.divide(result, total, out + offset_of(result_, unit, row) * size_, value_width_);
  }

  // What is seen of the keys by their place. Not less for a mask, whose scores are computed.
  Work work_seen(const Buffers& buffers, const Work& declared) const {
    Work seen = declared;
    seen.flops = 0;
    for (int64_t b = 0; b < batch_; ++b) {
      const Unit unit = unit_of(buffers, b * groups_);
      for (int64_t row = 0; row < rows_; row += heads_of_group()) {
        const int64_t keys = std::max<int64_t>(0, high_of(unit, row) - low_of(unit, row));
        seen.flops += 2 * heads_ * keys * (width_ + value_width_);
      }
      const int64_t span = rows_ == 0 ? 0 : high_of(unit, rows_ - 1) - low_of(unit, 0);
      const int64_t unseen = keys_ - std::max<int64_t>(0, span);
      seen.bytes -= unseen * groups_ * (width_ + value_width_) * size_;
    }
    return seen;
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

  const TypedLoops& loops_;
  int64_t size_;
  float scale_, softcap_;
  int64_t window_;  // 0: none
  bool causal_, cache_heads_first_;
  int64_t batch_, times_, heads_, width_, keys_, groups_, value_width_;
  int64_t group_heads_;  // that share keys and values
  int64_t rows_;         // query rows of a group, over all its heads
  Strides query_, result_, key_, value_;
  bool has_[9] = {}, wide_[9] = {};
  bool each_placed_ = false, each_bounded_ = false;  // a number for each sequence
  bool lengths_ = false, long_lengths_ = false;      // kv_rows are each sequence's entries
  int64_t otherwise_ = 0;                            // the position where none is given
  bool empty_is_nan_ = false;                        // a row that sees nothing
  Further mask_, bias_;

 private:
  static constexpr float kMinusInfinity = -__builtin_inff();
};

}  // namespace onnx_iron
