// A step of a decoder for one row: something done to the operands, a product or none, a sum or
// none. What is done is told by numbers, so that one program of a core does any such step.
//
// x holds the step's operands, one behind the other; what is done to them is left at its begin.
// The weight comes as one stream of tiles of kTile elements, rows whole or not: a block of kBlock
// rows of K, a multiple of 64, is a whole number of them.
// Accuracy against the references: of norm, RoPE, SiLU, Mul, GEMV and Add one after the other.
#include "common.h"
#include "decode_attention.h"
#include "functions.h"
#include "rms_norm.h"
#include "rope.h"

namespace onnx_iron::aie_kernels {
namespace {

constexpr int32_t kBlock = 8;
constexpr int32_t kTile = 512;
constexpr int32_t kChunk = 256;

// As kernels/designs/decode.py numbers them.
enum Prologue : int32_t { kNone, kNorm, kGate, kMul, kRope, kRopePairs, kAttention, kMerge };
enum Epilogue : int32_t { kProduct = 1, kAdd = 2 };

Halves<kLanes> product(const Halves<kLanes>& a, const Halves<kLanes>& b) {
  return aie::mul(a, b).to_vector<bfloat16>();
}

}  // namespace
}  // namespace onnx_iron::aie_kernels

using namespace onnx_iron::aie_kernels;

extern "C" {

// A chunk of the operands, to their place from `first` on.
void decode_put_bf16(const bfloat16* chunk, bfloat16* x, int32_t first) {
  for_vectors(kChunk,
              [&](int32_t i) { aie::store_v(x + first + i, aie::load_v<kLanes>(chunk + i)); });
}

// x is `rows` rows of n, then a weight of n, a second such array, or angles of n. `number` is the
// norm's epsilon by its bits: a core is told words. For attention, `rows` is where in x it is
// described, and `number` the column; to merge its parts, `number` is how many there are.
void decode_start_bf16(bfloat16* x, int32_t prologue, int32_t rows, int32_t n, int32_t number) {
  const NearestEven rounding;
  const bfloat16* other = x + rows * n;
  switch (prologue) {
    case kNorm:
      normalise_weighted(x, other, x, rows, n, __builtin_bit_cast(float, number));
      break;
    case kGate:
      for_vectors(rows * n, [&](int32_t i) {
        const Halves<kLanes> gate =
            round<kLanes>(silu<kLanes>(widen<kLanes>(aie::load_v<kLanes>(x + i))));
        aie::store_v(x + i, product(gate, aie::load_v<kLanes>(other + i)));
      });
      break;
    case kMul:
      for_vectors(rows * n, [&](int32_t i) {
        aie::store_v(x + i, product(aie::load_v<kLanes>(x + i), aie::load_v<kLanes>(other + i)));
      });
      break;
    case kRope:
      of_rows(x, other, x, rows, n, turn_halves);
      break;
    case kRopePairs:
      of_rows(x, other, x, rows, n, turn_pairs);
      break;
    case kAttention:
      begin_attention(x, rows, number, kTile);
      break;
    case kMerge:
      merge_attention(x, rows, n, number);
      break;
    default:
      break;
  }
}

void decode_clear_bf16(float* sums) {
  for (int32_t r = 0; r < kBlock; ++r) aie::store_v(sums + r * kLanes, aie::zeros<float, kLanes>());
}

// `first` is where in its block of rows the tile begins. Of attention, it is the tile's number, and
// k is where in x that is described.
void decode_tile_bf16(const bfloat16* weight, bfloat16* x, float* sums, int32_t k, int32_t first,
                      int32_t attention) {
  const NearestEven rounding;
  if (attention) {
    attend(weight, x, k, first, kTile);
    return;
  }
  int32_t row = first / k, begin = first % k;
  for (int32_t done = 0; done < kTile; ++row, begin = 0) {
    const int32_t left = kTile - done;
    const int32_t length = k - begin < left ? k - begin : left;
    Sums<kLanes> sum(aie::load_v<kLanes>(sums + row * kLanes));
    for_vectors(length, [&](int32_t i) {
      sum =
          aie::mac(sum, aie::load_v<kLanes>(weight + done + i), aie::load_v<kLanes>(x + begin + i));
    });
    aie::store_v(sums + row * kLanes, sum.to_vector<float>());
    done += length;
  }
}

// y is the block's products, or x from `first` on; plus x from first + added on.
void decode_finish_bf16(const float* sums, const bfloat16* x, bfloat16* y, int32_t epilogue,
                        int32_t first, int32_t added) {
  const NearestEven rounding;
  Halves<kBlock> result;
  if (epilogue & kProduct) {
    Floats<kBlock> totals = aie::zeros<float, kBlock>();
    for (int32_t r = 0; r < kBlock; ++r) {
      totals.set(aie::reduce_add(aie::load_v<kLanes>(sums + r * kLanes)), r);
    }
    result = round<kBlock>(totals);
  } else {
    result = aie::load_v<kBlock>(x + first);
  }
  if (epilogue & kAdd) result = aie::add(result, aie::load_v<kBlock>(x + added + first));
  aie::store_v(y, result);
}
}

ONNX_IRON_KERNEL(decode_put_bf16)
ONNX_IRON_KERNEL(decode_start_bf16)
ONNX_IRON_KERNEL(decode_clear_bf16)
ONNX_IRON_KERNEL(decode_tile_bf16)
ONNX_IRON_KERNEL(decode_finish_bf16)
