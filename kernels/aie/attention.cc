// Attention of a few query rows over a cache of keys and values, a tile of the cache at a time.
//
// One key head and the query heads that read it. dim and value_dim are multiples of kLanes. `rows`
// query rows, row-major over (positions, heads): row r stands at position r / heads, and sees the
// entries below min(entries, kv_rows, position + r / heads + 1), of which the last two only where
// the flags say so.
//
// query holds (rows, dim), then the given ones of position and kv_rows (int32). cache holds the
// keys (tile, dim), then the values (tile, value_dim), of the entries from `first` on; those below
// `due` were in the tile before and are passed over. state is the kernel's own between calls: each
// row's sum of values (value_dim), then the rows' maxima, then their sums of weights.
//
// Scores, weights and sums are float32; a weight meets its value in two bfloat16 limbs. Entries
// that a row does not see are not read, whatever they hold.
// Accuracy against the reference: 1 ulp, 4 ulp where the values cancel; 2^-8 relative and 1e-4
// absolute are promised.
#include "attention.h"

namespace onnx_iron::aie_kernels {
namespace {

enum Flag : int32_t { kCausal = 1, kPosition = 2, kKvRows = 4 };

// What a row has gathered so far.
struct Row {
  float* values;
  float* maximum;
  float* weights;

  Row(float* state, int32_t rows, int32_t row, int32_t value_dim)
      : values(state + row * value_dim),
        maximum(state + rows * value_dim + row),
        weights(maximum + rows) {}

  // Scales what was gathered under a lower maximum.
  void rescale(float by, int32_t value_dim) const {
    if (by == 1.0f) return;
    for_vectors(value_dim, [&](int32_t i) {
      aie::store_v(values + i, scaled<kLanes>(aie::load_v<kLanes>(values + i), by));
    });
  }
};

// Up to kScores entries.
void gather(const Row& row, const bfloat16* query, const bfloat16* keys, const bfloat16* values,
            int32_t count, int32_t dim, int32_t value_dim, float scale) {
  Floats<kScores> scores = aie::zeros<float, kScores>();
  for (int32_t j = 0; j < count; ++j) scores.set(dot(query, keys + j * dim, dim), j);
  scores = scaled_scores(scores, scale);
  for (int32_t j = count; j < kScores; ++j) scores.set(-__builtin_inff(), j);

  const float before = *row.maximum, top = aie::reduce_max(scores);
  const float highest = before < top ? top : before;
  const Floats<kScores> weights = weights_of(scores, highest);
  const float left = faded(before, highest);
  row.rescale(left, value_dim);
  *row.maximum = highest;
  *row.weights = *row.weights * left + aie::reduce_add(weights);

  const TwoLimbs limbs(weights);
  for_vectors(value_dim, [&](int32_t i) {
    Sums<kLanes> sum(aie::load_v<kLanes>(row.values + i));
    for (int32_t j = 0; j < count; ++j) {
      const Halves<kLanes> value = aie::load_v<kLanes>(values + j * value_dim + i);
      sum = add_weighted(sum, value, limbs.high.get(j), limbs.low.get(j));
    }
    aie::store_v(row.values + i, sum.to_vector<float>());
  });
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void attention_start_bf16(float* state, int32_t rows, int32_t value_dim) {
  for_vectors(rows * value_dim,
              [&](int32_t i) { aie::store_v(state + i, aie::zeros<float, kLanes>()); });
  for (int32_t r = 0; r < rows; ++r) {
    const Row row(state, rows, r, value_dim);
    *row.maximum = kLowest;
    *row.weights = 0.0f;
  }
}

void attention_bf16(const bfloat16* query, const bfloat16* cache, float* state, int32_t rows,
                    int32_t heads, int32_t dim, int32_t value_dim, int32_t tile, int32_t first,
                    int32_t due, int32_t entries, int32_t query_row, int32_t flags, float scale) {
  const NearestEven rounding;
  const bfloat16* behind = query + rows * dim;
  const int32_t position = (flags & kPosition) ? word_at(behind, 0) : 0;
  int32_t limit = entries;
  if (flags & kKvRows) limit = least(limit, word_at(behind, (flags & kPosition) ? 1 : 0));
  const bfloat16* values = cache + tile * dim;
  for (int32_t r = 0; r < rows; ++r) {
    const int32_t seen =
        (flags & kCausal) ? least(limit, position + query_row + r / heads + 1) : limit;
    const int32_t end = least(seen - first, tile);
    for (int32_t j = most(due - first, 0); j < end; j += kScores) {
      gather(Row(state, rows, r, value_dim), query + r * dim, cache + j * dim,
             values + j * value_dim, least(end - j, kScores), dim, value_dim, scale);
    }
  }
}

void attention_finish_bf16(const float* state, bfloat16* y, int32_t rows, int32_t value_dim) {
  const NearestEven rounding;
  const float* weights = state + rows * value_dim + rows;
  for (int32_t r = 0; r < rows; ++r) {
    // Nothing but scores of minus infinity weighs nothing, and has no mean.
    const float sum = weights[r] > 0.0f ? weights[r] : __builtin_nanf("");
    const float scale = reciprocal_of(sum);
    for_vectors(value_dim, [&](int32_t i) {
      const int32_t at = r * value_dim + i;
      aie::store_v(y + at, round<kLanes>(scaled<kLanes>(aie::load_v<kLanes>(state + at), scale)));
    });
  }
}
}

ONNX_IRON_KERNEL(attention_start_bf16)
ONNX_IRON_KERNEL(attention_bf16)
ONNX_IRON_KERNEL(attention_finish_bf16)
