// The inner loops of kernels, as a table of functions. There is one table for each instruction set
// (sources in vector/); operands are plain pointers, all checks are made before.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/kernel.h"

namespace onnx_iron {

// GEMM works on groups of this many rows of A, each group interleaved 8 elements at a time.
inline constexpr int64_t kGroupRows = 3;
// What one call of gemm computes at most, in rows of A.
inline constexpr int64_t kTileRows = 96;
// The same with b as (K, N).
inline constexpr int64_t kRowMajorTileRows = 96;
inline constexpr int64_t kRowMajorTileColumns = 64;

// Rows of float32 scratch begin at multiples of 8 elements, so that whole vectors fit.
inline constexpr int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }

// A group of rows of A as GEMM packs it: its elements, and a cache line for what a loop notes of
// it.
inline constexpr int64_t group_floats(int64_t k) { return kGroupRows * padded(k) + 16; }

// Keys that Attention takes at a time; part of the order of its sums.
inline constexpr int64_t kAttentionChunk = 128;
// Query rows that share one pass over a chunk as it is in memory, and over a packed one.
inline constexpr int64_t kAttentionRows = 3;
inline constexpr int64_t kAttentionTile = 24;
// Keys, and columns of values, that stand together in a packed chunk.
inline constexpr int64_t kAttentionPack = 32;
// Elements of a record of Attention: weighted sums of `width` values, the largest score, the total.
inline constexpr int64_t attention_record(int64_t width) { return padded(width) + 8; }

struct ConvShape {
  int64_t channels;
  int64_t taps;
  int64_t dilation;  // rows from what a tap reads to what the next does
  bool silu;
};

// What becomes of the scores of a query row with a chunk of keys.
struct AttentionRow {
  int64_t first, last;  // it sees none of the chunk's keys outside of these
  const uint8_t* mask;  // a byte for each key, 0 where it is not seen; null: all are
  const void* bias;     // what is added to each score; null: nothing
  float offset;         // added to all
  float slope;          // times how far a key is after the row's own, is added ...
  float away;           // ... which for the first key is this far
};

struct ScanShape {
  int64_t channels;
  int64_t states;  // of a channel
  bool softplus;
};

// Where a sequence's rows and states are; d and dt_bias may be null, new_state may be state.
struct ScanOperands {
  const void *x, *dt;
  const float* a;
  const void *b, *c;
  const float *state, *d, *dt_bias;
  void* y;
  float* new_state;
};

// Columns of a head's state that are carried through all rows together: independent of the others.
inline constexpr int64_t kStateColumns = 32;

struct LinearAttentionShape {
  int64_t heads;    // of keys and values, each with a state (key_width, value_width)
  int64_t queries;  // heads of queries that read one state
  int64_t key_width, value_width;
  int64_t decays;  // of a head and row: none, one, or key_width
  bool corrects;   // values are written by what the state has for their key
  float scale;
};

// Where a sequence's rows and states are. decay holds factors and beta rates, in float32; new_state
// may be state.
struct LinearAttentionOperands {
  const void *query, *key, *value;
  const float *state, *decay, *beta;
  void* y;
  float* new_state;
};

struct AttentionChunk {
  const void* key;                   // first key of the chunk, of this group's head
  const void* value;                 // likewise
  int64_t key_stride, value_stride;  // elements from a key (value) to the next
  int64_t key_width, value_width;    // D, Dv
  float scale;
  float softcap;    // 0: none
  bool float_bias;  // float32, else bfloat16
};

// A matrix (N, K) in blocks of `block` elements along K, each code less its block's zero point,
// times its block's scale. Codes are packed, the first in the lowest bits; a row has whole blocks.
struct Codes {
  const uint8_t* codes;
  const void* scales;  // T, (N, blocks)
  const void* zeros;   // uint8, packed as the codes, or T; null: half of what the bits hold
  bool real_zeros;     // T
  int64_t bits;        // 4 or 8
  int64_t block, blocks;
};

// Elements of a packed chunk's keys and values.
inline constexpr int64_t attention_packed_keys(int64_t width) {
  return padded(width) * kAttentionChunk;
}
inline constexpr int64_t attention_packed_values(int64_t width) {
  return (width + kAttentionPack - 1) / kAttentionPack * kAttentionPack * kAttentionChunk;
}

// Loops on one dtype T. x, out and the like are T; float pointers are float32 scratch.
struct TypedLoops {
  void (*widen)(const void* x, float* out, int64_t n);
  void (*narrow)(const float* x, void* out, int64_t n);
  void (*divide)(const float* x, float by, void* out, int64_t n);

  // Over rows of `width`; weight may be null.
  void (*rms_norm)(const void* x, const void* weight, void* out, int64_t rows, int64_t width,
                   float epsilon);
  void (*layer_norm)(const void* x, const void* weight, const void* bias, void* out, int64_t rows,
                     int64_t width, float epsilon);
  void (*softmax)(const void* x, void* out, int64_t rows, int64_t width);
  void (*log_softmax)(const void* x, void* out, int64_t rows, int64_t width);
  void (*reduce)(const void* x, void* out, int64_t rows, int64_t width, bool mean);

  // One row of `width` elements by one row of angles, which are T or float32.
  void (*rope)(const void* x, const void* angles, bool float_angles, void* out, int64_t width,
               bool interleaved);

  // Rows begin..end-1 and channels first..last-1 of y. bias may be null.
  void (*causal_conv1d)(const ConvShape& shape, const void* x, const void* taps, const void* state,
                        const void* bias, void* y, int64_t begin, int64_t end, int64_t first,
                        int64_t last);

  // Channels begin..end-1 of the first `rows` rows.
  void (*selective_scan)(const ScanShape& shape, const ScanOperands& operands, int64_t rows,
                         int64_t begin, int64_t end);

  // One head, up to kStateColumns columns of its state from `column` on, through `rows` rows.
  void (*linear_attention)(const LinearAttentionShape& shape,
                           const LinearAttentionOperands& operands, int64_t rows, int64_t head,
                           int64_t column);
  // exp(x), in float32.
  void (*widened_exp)(const void* x, float* out, int64_t n);

  // An epilogue works on the float32 sums, before they are rounded; null: there is none.
  // out[n] = epilogue(w[n] . x) for rows begin..end-1 of w (N, K). x is padded with zeros.
  void (*gemv)(const void* w, const float* x, void* out, int64_t k, int64_t begin, int64_t end,
               UnaryLoop epilogue);
  // Interleaves the rows of a (M, K) into groups begin..end-1.
  void (*pack)(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end);
  // A tile of out (M, N): groups group..group_end-1 of packed rows, tile_columns rows column.. of b
  // (N, K).
  int64_t tile_columns;
  void (*gemm)(const float* packed, const void* b, void* out, int64_t m, int64_t n, int64_t k,
               int64_t group, int64_t group_end, int64_t column, UnaryLoop epilogue);

  // The same with a matrix in codes; rows are packed by float32's pack. And one row of it, as T.
  void (*gemm_codes)(const float* packed, const Codes& codes, void* out, int64_t m, int64_t n,
                     int64_t k, int64_t group, int64_t group_end, int64_t column);
  void (*decode)(const Codes& codes, int64_t row, int64_t k, void* out);

  // With b as (K, N): a row of out by x in float32, columns begin..end-1 ...
  void (*gemv_row_major)(const float* x, const void* b, void* out, int64_t n, int64_t k,
                         int64_t begin, int64_t end, UnaryLoop epilogue);
  // ... or a tile of it. Groups begin..end-1 of row_major_group rows of a (M, K), each interleaved.
  int64_t row_major_group;
  void (*pack_rows)(const void* a, float* packed, int64_t m, int64_t k, int64_t begin, int64_t end);
  // Groups group..group_end-1 by kRowMajorTileColumns columns of b.
  void (*gemm_row_major)(const float* packed, const void* b, void* out, int64_t m, int64_t n,
                         int64_t k, int64_t group, int64_t group_end, int64_t column,
                         UnaryLoop epilogue);

  // For each of up to kAttentionRows query rows (padded(D) apart): a record of the values' sums
  // weighted by exp(score - largest), then that largest score and the sum of the weights; minus
  // infinity and 0 where the row sees nothing. Records are attention_record(Dv) apart.
  void (*attention)(const AttentionChunk& chunk, const float* query, const AttentionRow* rows,
                    int64_t count, float* records);
  // The first `keys` of a chunk in float32, zeros after them: keys in the order in which scores
  // are summed, kAttentionPack of them together, and columns of values likewise.
  void (*attention_pack)(const AttentionChunk& chunk, int64_t keys, float* packed_keys,
                         float* packed_values);
};

struct FloatLoops {
  // As `attention`, of up to kAttentionTile rows over a packed chunk. That many rows can be read
  // from query, and written to records.
  void (*attention_tile)(const AttentionChunk& chunk, const float* packed_keys,
                         const float* packed_values, const float* query, const AttentionRow* rows,
                         int64_t count, float* records);
  // Each of `count` records of Attention takes in the one of a further chunk.
  void (*attention_fold)(float* records, const float* further, int64_t count, int64_t width);
};

struct Loops {
  const char* name;
  TypedLoops float32;
  TypedLoops bfloat16;
  FloatLoops floats;
  // One for each file of functions/.
  const FunctionFile* const* functions;
  size_t function_files;

  const TypedLoops& of(DType dtype) const { return dtype == DType::kBFloat16 ? bfloat16 : float32; }
};

// The table for this CPU: the best that it has. The environment variable ONNX_IRON_CPU, read once,
// names another. Throws std::runtime_error where it names none, or one that this CPU cannot run.
const Loops& loops();

// The table that every CPU can run.
const Loops& portable_loops();

// The functions of one operand in a table, and of two.
std::vector<const UnaryFunction*> unary_functions(const Loops& loops);
std::vector<const BinaryFunction*> binary_functions(const Loops& loops);

}  // namespace onnx_iron
