// Attention of a decoder's one row: a column's part of the cache, and the parts merged.
//
// The cache comes as tiles of kTile elements, a column's keys and then its values, each in rounds
// of a few entries of all the key heads that the column has. x holds the query, two numbers of the
// call's (how many entries are seen, and in how many rounds they come), an Attention, and then, at
// the places that it names, the state and the scores.
//
// The state has kStride floats a query head more than dim: the sum of values, the greatest score,
// the sum of weights, and padding. The scores of a head are floats until all are there; then, 16 at
// a time, the high limbs of their weights and the low ones.
#pragma once

#include "attention.h"

namespace onnx_iron::aie_kernels {

inline constexpr int32_t kStride = 32;
inline constexpr int32_t kMostParts = 8;  // a column each

// As kernels/designs/decode_attention.py has it; places are in elements of x.
struct Attention {
  int32_t heads, groups, dim;  // of a column: query heads, key heads, their length
  float scale;
  int32_t parts, round;          // of the cache, over columns; entries of a column's round
  int32_t state, scores, width;  // width: scores of a head
  // Made at the begin: the column's query, how many of its entries are seen, its tiles of keys.
  int32_t query, seen, tiles;

  static Attention at(const bfloat16* place) {
    Attention read;
    __builtin_memcpy(&read, place, sizeof(read));
    return read;
  }
  void keep(bfloat16* place) const {
    __builtin_memcpy(static_cast<void*>(place), this, sizeof(*this));
  }

  float* state_of(bfloat16* x, int32_t head) const {
    return reinterpret_cast<float*>(x + state) + head * (dim + kStride);
  }
  float* scores_of(bfloat16* x, int32_t head) const {
    return reinterpret_cast<float*>(x + scores) + head * width;
  }
};

// Which of the entries of a column a call sees, and what is left of earlier steps cleared.
inline void begin_attention(bfloat16* x, int32_t place, int32_t column, int32_t tile) {
  Attention a = Attention::at(x + place);
  const int32_t seen = word_at(x + place, -2), rounds = word_at(x + place, -1);
  const int32_t part = column % a.parts, every = a.parts * a.round;
  const int32_t reach = most(seen - part * a.round, 0);
  a.seen = least(reach / every * a.round + least(reach % every, a.round), rounds * a.round);
  a.query = column / a.parts * a.heads * a.dim;
  a.tiles = rounds * (a.round * a.groups * a.dim / tile);
  a.keep(x + place);
  for (int32_t h = 0; h < a.heads; ++h) {
    float* state = a.state_of(x, h);
    for_vectors(a.dim + kStride,
                [&](int32_t i) { aie::store_v(state + i, aie::zeros<float, kLanes>()); });
    state[a.dim] = kLowest;
  }
}

// The scores of a head become weights.
inline void weigh(const Attention& a, bfloat16* x, int32_t head) {
  float* scores = a.scores_of(x, head);
  for (int32_t j = a.seen; j % kScores != 0; ++j) scores[j] = -__builtin_inff();
  float highest = kLowest, sum = 0.0f;
  for (int32_t j = 0; j < a.seen; j += kScores) {
    const Floats<kScores> chunk = scaled_scores(aie::load_v<kScores>(scores + j), a.scale);
    aie::store_v(scores + j, chunk);
    const float top = aie::reduce_max(chunk);
    if (highest < top) highest = top;
  }
  for (int32_t j = 0; j < a.seen; j += kScores) {
    const Floats<kScores> weights = weights_of(aie::load_v<kScores>(scores + j), highest);
    sum += aie::reduce_add(weights);
    const TwoLimbs limbs(weights);
    bfloat16* kept = reinterpret_cast<bfloat16*>(scores + j);
    aie::store_v(kept, limbs.high);
    aie::store_v(kept + kScores, limbs.low);
  }
  float* state = a.state_of(x, head);
  state[a.dim] = highest;
  state[a.dim + 1] = sum;
}

// A tile, by its number, of a column's keys or values. Entries that are not seen are not read.
inline void attend(const bfloat16* cache, bfloat16* x, int32_t place, int32_t number,
                   int32_t tile) {
  const Attention a = Attention::at(x + place);
  const bool keys = number < a.tiles;
  if (number == a.tiles) {
    for (int32_t h = 0; h < a.heads; ++h) weigh(a, x, h);
  }
  const int32_t before = (keys ? number : number - a.tiles) * (tile / a.dim);
  const int32_t shared = a.heads / a.groups;
  int32_t entry = before / a.groups, group = before % a.groups;
  for (int32_t at = 0; at < tile && entry < a.seen; at += a.dim) {
    for (int32_t h = group * shared; h < (group + 1) * shared; ++h) {
      if (keys) {
        a.scores_of(x, h)[entry] = dot(x + a.query + h * a.dim, cache + at, a.dim);
        continue;
      }
      const bfloat16* weights =
          reinterpret_cast<const bfloat16*>(a.scores_of(x, h) + entry / kScores * kScores);
      const bfloat16 high = weights[entry % kScores], low = weights[entry % kScores + kScores];
      float* values = a.state_of(x, h);
      for_vectors(a.dim, [&](int32_t i) {
        const Sums<kLanes> sum(aie::load_v<kLanes>(values + i));
        aie::store_v(
            values + i,
            add_weighted(sum, aie::load_v<kLanes>(cache + at + i), high, low).to_vector<float>());
      });
    }
    if (++group == a.groups) {
      group = 0;
      ++entry;
    }
  }
}

// The states of `parts` parts, each of `heads` heads one behind the other, become the heads' means,
// at the begin of x: each is written where what was there has been read.
inline void merge_attention(bfloat16* x, int32_t heads, int32_t dim, int32_t parts) {
  const int32_t width = dim + kStride;
  const float* states = reinterpret_cast<const float*>(x);
  for (int32_t h = 0; h < heads; ++h) {
    const float* state = states + h * width;
    float highest = kLowest, sum = 0.0f;
    for (int32_t p = 0; p < parts; ++p) {
      const float top = state[p * heads * width + dim];
      if (highest < top) highest = top;
    }
    float left[kMostParts];
    for (int32_t p = 0; p < parts; ++p) {
      const float* part = state + p * heads * width;
      left[p] = faded(part[dim], highest);
      sum += part[dim + 1] * left[p];
    }
    // Nothing but scores of minus infinity weighs nothing, and has no mean.
    const float mean = sum > 0.0f ? reciprocal_of(sum) : __builtin_nanf("");
    for_vectors(dim, [&](int32_t i) {
      Floats<kLanes> total = aie::zeros<float, kLanes>();
      for (int32_t p = 0; p < parts; ++p) {
        const Floats<kLanes> values = aie::load_v<kLanes>(state + p * heads * width + i);
        total = aie::add(total, scaled<kLanes>(values, left[p]));
      }
      aie::store_v(x + h * dim + i, round<kLanes>(scaled<kLanes>(total, mean)));
    });
  }
}

}  // namespace onnx_iron::aie_kernels
