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
#include "functions.h"

namespace onnx_iron::aie_kernels {
namespace {

enum Flag : int32_t { kCausal = 1, kPosition = 2, kKvRows = 4 };

constexpr int32_t kChunk = 16;       // entries whose weights are taken at once
constexpr float kLowest = -3.0e38f;  // the maximum of no entries: below every finite score

int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }

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
      aie::store_v(values + i, multiply<kLanes>(aie::load_v<kLanes>(values + i), by));
    });
  }
};

float dot(const bfloat16* a, const bfloat16* b, int32_t dim) {
  Sums<kLanes> sum = aie::zeros<accfloat, kLanes>();
  for_vectors(dim, [&](int32_t i) {
    sum = aie::mac(sum, aie::load_v<kLanes>(a + i), aie::load_v<kLanes>(b + i));
  });
  return aie::reduce_add(sum.to_vector<float>());
}

// An infinite score has no limbs: there the product of the leading ones counts.
Floats<kChunk> scaled(const Floats<kChunk>& scores, float scale) {
  const Floats<kChunk> by = aie::broadcast<float, kChunk>(scale);
  const Floats<kChunk> leading =
      aie::mul(round<kChunk>(scores), round<kChunk>(by)).to_vector<float>();
  return aie::select(multiply<kChunk>(scores, by), leading,
                     aie::ge(size_bits<kChunk>(scores), kInfinityBits));
}

// Up to kChunk entries.
void gather(const Row& row, const bfloat16* query, const bfloat16* keys, const bfloat16* values,
            int32_t count, int32_t dim, int32_t value_dim, float scale) {
  Floats<kChunk> scores = aie::zeros<float, kChunk>();
  for (int32_t j = 0; j < count; ++j) scores.set(dot(query, keys + j * dim, dim), j);
  scores = scaled(scores, scale);
  for (int32_t j = count; j < kChunk; ++j) scores.set(-__builtin_inff(), j);

  const float before = *row.maximum, top = aie::reduce_max(scores);
  const float highest = before < top ? top : before;
  const Floats<kChunk> weights =
      decay<kChunk>(aie::sub(aie::broadcast<float, kChunk>(highest), scores));
  const float faded = decay<kChunk>(aie::broadcast<float, kChunk>(highest - before)).get(0);
  row.rescale(faded, value_dim);
  *row.maximum = highest;
  *row.weights = *row.weights * faded + aie::reduce_add(weights);

  const Halves<kChunk> high = round<kChunk>(weights);
  const Halves<kChunk> low = round<kChunk>(aie::sub(weights, widen<kChunk>(high)));
  for_vectors(value_dim, [&](int32_t i) {
    Sums<kLanes> sum(aie::load_v<kLanes>(row.values + i));
    for (int32_t j = 0; j < count; ++j) {
      const Halves<kLanes> value = aie::load_v<kLanes>(values + j * value_dim + i);
      sum = aie::mac(aie::mac(sum, value, low.get(j)), value, high.get(j));
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
    for (int32_t j = most(due - first, 0); j < end; j += kChunk) {
      gather(Row(state, rows, r, value_dim), query + r * dim, cache + j * dim,
             values + j * value_dim, least(end - j, kChunk), dim, value_dim, scale);
    }
  }
}

void attention_finish_bf16(const float* state, bfloat16* y, int32_t rows, int32_t value_dim) {
  const NearestEven rounding;
  const float* weights = state + rows * value_dim + rows;
  for (int32_t r = 0; r < rows; ++r) {
    // Nothing but scores of minus infinity weighs nothing, and has no mean.
    const float sum = weights[r] > 0.0f ? weights[r] : __builtin_nanf("");
    const Floats<kLanes> scale = reciprocal<kLanes>(aie::broadcast<float, kLanes>(sum));
    for_vectors(value_dim, [&](int32_t i) {
      const int32_t at = r * value_dim + i;
      aie::store_v(y + at, round<kLanes>(multiply<kLanes>(aie::load_v<kLanes>(state + at), scale)));
    });
  }
}
}

ONNX_IRON_KERNEL(attention_start_bf16)
ONNX_IRON_KERNEL(attention_bf16)
ONNX_IRON_KERNEL(attention_finish_bf16)
