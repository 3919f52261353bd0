// LinearAttention: a state for each head that decays and takes in keys with their values.
#include <cmath>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"

namespace onnx_iron {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kState, kDecay, kBeta, kRows };

class LinearAttention : public Kernel {
 public:
  explicit LinearAttention(const Node& node)
      : loops_(loops().of(node.inputs[kQuery].dtype)),
        size_(size_of(node.inputs[kQuery].dtype)),
        bounded_(node.has_input(kRows)) {
    const Shape &query = node.inputs[kQuery].shape, &key = node.inputs[kKey].shape;
    const size_t axis = query.size() - 3;
    batch_ = axis == 1 ? query[0] : 1;
    rows_ = query[axis];
    shape_ = {.heads = key[axis + 1],
              .queries = query[axis + 1] / key[axis + 1],
              .key_width = key.back(),
              .value_width = node.inputs[kValue].shape.back(),
              .decays = 0,
              .corrects = node.has_input(kBeta),
              .scale = 0.0f};
    const double width = static_cast<double>(shape_.key_width);
    shape_.scale = node.attributes.real("scale", static_cast<float>(1 / std::sqrt(width)));
    if (node.has_input(kDecay)) {
      const Operand& decay = node.inputs[kDecay];
      shape_.decays = decay.shape.size() == query.size() ? shape_.key_width : 1;
      decay_loops_ = &loops().of(decay.dtype);
    }
    if (shape_.corrects) beta_loops_ = &loops().of(node.inputs[kBeta].dtype);
  }

  // The decays' factors and the rates, in float32.
  size_t scratch_bytes() const override {
    return (decays_in_all() + (shape_.corrects ? rates_in_all() : 0)) * sizeof(float);
  }

  void run(const Buffers& buffers, Threads& threads) const override {
    const bool decays = shape_.decays > 0;
    const int64_t rows = scalar_at(input_or_null(buffers, bounded_, kRows), rows_);
    if (rows < 0 || rows > rows_) {
      throw std::invalid_argument(text("LinearAttention: rows is ", rows, ", expected 0..", rows_,
                                       " (query has ", rows_, " rows)"));
    }
    float* factors = static_cast<float*>(buffers.scratch);
    float* rates = factors + decays_in_all();
    if (decays) decay_loops_->widened_exp(buffers.inputs[kDecay], factors, decays_in_all());
    if (shape_.corrects) beta_loops_->widen(buffers.inputs[kBeta], rates, rates_in_all());
    const int64_t keys = rows_ * shape_.heads * shape_.key_width * size_;
    const int64_t values = rows_ * shape_.heads * shape_.value_width * size_;
    const int64_t states = shape_.heads * shape_.key_width * shape_.value_width;
    const int64_t blocks = (shape_.value_width + kStateColumns - 1) / kStateColumns;
    const int64_t work = rows * shape_.key_width * kStateColumns;
    const auto part = [&](size_t input, int64_t bytes) {
      return static_cast<const char*>(buffers.inputs[input]) + bytes;
    };
    for (int64_t i = 0; i < batch_; ++i) {
      const LinearAttentionOperands operands = {
          .query = part(kQuery, i * keys * shape_.queries),
          .key = part(kKey, i * keys),
          .value = part(kValue, i * values),
          .state = static_cast<const float*>(buffers.inputs[kState]) + i * states,
          .decay = factors + i * rows_ * shape_.heads * shape_.decays,
          .beta = rates + i * rows_ * shape_.heads,
          .y = static_cast<char*>(buffers.outputs[0]) + i * values * shape_.queries,
          .new_state = static_cast<float*>(buffers.outputs[1]) + i * states,
      };
      const int64_t grain = kLightGrain / std::max<int64_t>(1, work);
      parallel_ranges(threads, shape_.heads * blocks, grain, 1, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          loops_.linear_attention(shape_, operands, rows, at / blocks, at % blocks * kStateColumns);
        }
      });
      const int64_t row_bytes = shape_.heads * shape_.queries * shape_.value_width * size_;
      clear_some(static_cast<char*>(operands.y) + rows * row_bytes, (rows_ - rows) * row_bytes);
    }
  }

 private:
  int64_t rates_in_all() const { return batch_ * rows_ * shape_.heads; }
  int64_t decays_in_all() const { return rates_in_all() * shape_.decays; }

  const TypedLoops& loops_;
  const TypedLoops *decay_loops_ = nullptr, *beta_loops_ = nullptr;
  int64_t size_, batch_, rows_;
  bool bounded_;
  LinearAttentionShape shape_;
};

std::vector<Shape> linear_attention_shapes(const Node& node) {
  check_inputs(node, 4, 7);
  const Shape &query = node.inputs[kQuery].shape, &key = node.inputs[kKey].shape;
  const Shape& value = node.inputs[kValue].shape;
  const size_t rank = query.size();
  require((rank == 3 || rank == 4) && query.back() > 0, node, "query has shape ", text_of(query),
          ", expected (T, H, K) or (B, T, H, K) with K >= 1");
  Shape wanted = query;
  require(key.size() == rank && key[rank - 2] > 0, node, "key has shape ", text_of(key),
          ", expected heads of the rank of query, ", text_of(query));
  wanted[rank - 2] = key[rank - 2];
  require(key == wanted && query[rank - 2] % key[rank - 2] == 0, node, "key has shape ",
          text_of(key), ", expected ", text_of(query), " (as query) with G heads, G a divisor of ",
          query[rank - 2]);
  require(value.size() == rank, node, "value has shape ", text_of(value), ", expected ",
          text_of(key), " (as key) with another last dimension at most");
  wanted.back() = value.back();
  check_shape(node, "value", node.inputs[kValue], wanted, " (as key)");
  Shape state(query.begin(), query.end() - 3);
  state.insert(state.end(), {key[rank - 2], key[rank - 1], value[rank - 1]});
  check_shape(node, "state", node.inputs[kState], state, " (by key and value)");
  Shape y = query;
  y.back() = value.back();
  return {y, state};
}

std::unique_ptr<Kernel> make_linear_attention(const Node& node) {
  check_counts(node, 4, 7, 2);
  const Operand &query = node.inputs[kQuery], &key = node.inputs[kKey];
  check_real(node, "query", query);
  check_same_dtype(node, "key", key, "query", query);
  check_same_dtype(node, "value", node.inputs[kValue], "query", query);
  check_dtype(node, "state", node.inputs[kState], {DType::kFloat32});
  const std::vector<Shape> expected = linear_attention_shapes(node);
  const Shape per_head(key.shape.begin(), key.shape.end() - 1);
  if (node.has_input(kDecay)) {
    const Operand& decay = node.inputs[kDecay];
    check_dtype(node, "decay", decay, {query.dtype, DType::kFloat32});
    require(decay.shape == per_head || decay.shape == key.shape, node, "decay has shape ",
            text_of(decay.shape), ", expected ", text_of(per_head), " or ", text_of(key.shape),
            " (as key)");
  }
  if (node.has_input(kBeta)) {
    check_dtype(node, "beta", node.inputs[kBeta], {query.dtype, DType::kFloat32});
    check_shape(node, "beta", node.inputs[kBeta], per_head, " (key's heads)");
  }
  if (node.has_input(kRows)) check_scalar(node, "rows", node.inputs[kRows]);
  check_same_dtype(node, "y", node.outputs[0], "query", query);
  check_shape(node, "y", node.outputs[0], expected[0], " (query's heads, value's width)");
  require(node.outputs[1].present, node, "new_state is omitted, expected a tensor");
  check_dtype(node, "new_state", node.outputs[1], {DType::kFloat32});
  check_shape(node, "new_state", node.outputs[1], expected[1], " (as state)");
  return std::make_unique<LinearAttention>(node);
}

const Registration kLinearAttention("LinearAttention", make_linear_attention,
                                    linear_attention_shapes);

}  // namespace
}  // namespace onnx_iron
