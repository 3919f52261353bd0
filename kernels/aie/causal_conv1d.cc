// CausalConv1d in bfloat16, a tile of rows at a time, with the state carried in and out.
//
// channels is a multiple of kLanes; 2 <= width <= 8 taps. The products are exact, their sum is
// taken in float32 over ascending taps, then bias and SiLU, one rounding: any split of the rows
// into tiles, and of a sequence into calls, gives the same bits.
// Accuracy against the reference: 0 ulp, 1 ulp with SiLU; the new state is exact.
//
// parameters holds, one after the other, taps (width, channels), the state (width - 1, channels),
// the bias (channels) where there is one, and the count of valid rows (int32) where there is one.
// window is the kernel's own between calls: the width - 1 rows before the tile, then the tile.
//
// Tiles come in order. The last may reach back over rows that the one before it had, so that it is
// whole: then `first`, the tile's first row, is below `due`, the first row that is new.
#include "functions.h"

namespace onnx_iron::aie_kernels {
namespace {

enum Flag : int32_t { kBias = 1, kSiLU = 2, kRows = 4 };

void copy_rows(const bfloat16* from, bfloat16* to, int32_t elements) {
  for_vectors(elements, [&](int32_t i) { aie::store_v(to + i, aie::load_v<kLanes>(from + i)); });
}

struct Filter {
  const bfloat16* taps;
  const bfloat16* bias;  // null: none
  int32_t width, channels;
  bool activated;

  // One output vector from the rows that its taps meet, the oldest first.
  Halves<kLanes> operator()(const bfloat16* rows, int32_t channel) const {
    const auto at = [&](const bfloat16* base, int32_t k) {
      return aie::load_v<kLanes>(base + k * channels + channel);
    };
    Sums<kLanes> sum = aie::mul(at(rows, 0), at(taps, 0));
    for (int32_t k = 1; k < width; ++k) sum = aie::mac(sum, at(rows, k), at(taps, k));
    if (bias != nullptr) sum = aie::add(sum, at(bias, 0));
    if (activated) return round<kLanes>(silu<kLanes>(sum.to_vector<float>()));
    return sum.to_vector<bfloat16>();
  }
};

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

void causal_conv1d_bf16(const bfloat16* x, const bfloat16* parameters, bfloat16* window,
                        bfloat16* y, bfloat16* new_state, int32_t tile_rows, int32_t channels,
                        int32_t width, int32_t first, int32_t due, int32_t all_rows,
                        int32_t flags) {
  const NearestEven rounding;
  const int32_t history = (width - 1) * channels;
  const bfloat16* state = parameters + width * channels;
  const bfloat16* behind = state + history;
  const Filter filter{parameters, (flags & kBias) ? behind : nullptr, width, channels,
                      (flags & kSiLU) != 0};
  if (flags & kBias) behind += channels;
  const int32_t valid = (flags & kRows) ? word_at(behind, 0) : all_rows;

  // The rows before this tile are in the window of the tile before, `advance` rows on.
  const int32_t advance = tile_rows - (due - first);
  copy_rows(first == 0 ? state : window + advance * channels, window, history);
  copy_rows(x, window + history, tile_rows * channels);

  for (int32_t t = 0; t < tile_rows; ++t) {
    for_vectors(channels, [&](int32_t c) {
      aie::store_v(y + t * channels + c, filter(window + t * channels, c));
    });
  }
  const int32_t kept = valid - first;
  if (kept >= 0 && kept <= tile_rows) copy_rows(window + kept * channels, new_state, history);
}
}

ONNX_IRON_KERNEL(causal_conv1d_bf16)
