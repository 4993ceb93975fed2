#include "stp/device/kernels.h"

#include <stdexcept>

namespace stp {
namespace {

std::string shape_text(int64_t rows, int64_t columns, DType type) {
  return std::to_string(rows) + " x " + std::to_string(columns) + " " + to_string(type);
}

}  // namespace

int64_t position_of(int cp, int cp_index, int64_t seq, int64_t row) {
  const int64_t piece = seq / 2;
  if (cp == 1) return row;
  return row < piece ? cp_index * piece + row : (2 * cp - 1 - cp_index) * piece + row - piece;
}

AttentionBlock attention_block(const AttentionShape& shape, int other) {
  const int piece = shape.seq / 2;
  return other < shape.cp_index ? AttentionBlock{.first_query = 0, .keys = piece}
                                : AttentionBlock{.first_query = piece, .keys = shape.seq};
}

void Kernels::refuse_vision() { throw std::logic_error("this backend has no kernels for vision encoders"); }
void Kernels::run_layer_norm_forward(Stream& /*stream*/, const Tensor& /*x*/, const Tensor& /*gain*/,
                                     const Tensor& /*bias*/, double /*epsilon*/, const Tensor& /*y*/,
                                     const Tensor& /*statistics*/) {
  refuse_vision();
}
void Kernels::run_layer_norm_backward(Stream& /*stream*/, const Tensor& /*dy*/, const Tensor& /*x*/,
                                      const Tensor& /*gain*/, const Tensor& /*statistics*/,
                                      double /*residual_factor*/, const Tensor& /*residual*/,
                                      const Tensor& /*dx*/, const Tensor& /*gain_gradient*/,
                                      const Tensor& /*bias_gradient*/) {
  refuse_vision();
}
void Kernels::run_add_bias(Stream& /*stream*/, double /*factor*/, const Tensor& /*bias*/,
                           const Tensor& /*x*/) {
  refuse_vision();
}
void Kernels::run_gelu_forward(Stream& /*stream*/, const Tensor& /*x*/, const Tensor& /*out*/) {
  refuse_vision();
}
void Kernels::run_gelu_backward(Stream& /*stream*/, const Tensor& /*x*/, const Tensor& /*out_gradient*/,
                                const Tensor& /*x_gradient*/) {
  refuse_vision();
}

void Kernels::refuse(const char* kernel, const std::string& why) {
  throw std::logic_error(std::string(kernel) + ": " + why);
}

void Kernels::expect(const char* kernel, const Tensor& x, std::initializer_list<Expected> others) {
  if (!x) refuse(kernel, "a tensor is empty");
  if (!x.memory->held) refuse(kernel, "the memory of a tensor is used after its release");
  for (const Expected& other : others) {
    const auto& [name, tensor, rows, columns, type] = other;
    if (!tensor || tensor.rows != rows || tensor.columns != columns || tensor.type != type)
      refuse(kernel, std::string(name) + " is " +
                         (tensor ? shape_text(tensor.rows, tensor.columns, tensor.type) : "empty") +
                         ", not " + shape_text(rows, columns, type));
    if (!tensor.memory->held) refuse(kernel, std::string(name) + " is used after its release");
  }
  if (x.type == DType::i32) refuse(kernel, "no kernel for " + to_string(x.type));
}

void Kernels::expect_heads(const char* kernel, const AttentionShape& shape, bool rotated) {
  if (shape.batch >= 0 && shape.seq >= 0 && shape.q_heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
      shape.q_heads % shape.kv_heads == 0 && (!rotated || shape.head_dim % 2 == 0) &&
      (shape.causal || shape.cp == 1))
    return;
  refuse(kernel, "no attention of " + std::to_string(shape.batch) + " x " + std::to_string(shape.seq) +
                     " tokens with " + std::to_string(shape.q_heads) + " query heads and " +
                     std::to_string(shape.kv_heads) + " key heads of " + std::to_string(shape.head_dim) +
                     (rotated ? ", rotated" : "") + (shape.causal ? "" : ", without mask"));
}

void Kernels::expect_block(const char* kernel, const AttentionShape& shape, const AttentionBlock& block,
                           const Tensor& kv, DType type) {
  expect(kernel, kv, {{"keys and values", kv, shape.tokens(), 2 * shape.kv_columns(), type}});
  if (block.first_query < 0 || block.first_query >= shape.seq || block.keys < 1 || block.keys > shape.seq)
    refuse(kernel, "no queries from " + std::to_string(block.first_query) + " on and " +
                       std::to_string(block.keys) + " keys in samples of " + std::to_string(shape.seq));
}

void Kernels::expect_attention(const char* kernel, const AttentionShape& shape, const Tensor& qkv,
                               const Tensor& out, const Tensor& log_sum_exp) {
  expect_heads(kernel, shape, false);
  expect(kernel, qkv,
         {{"qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type},
          {"out", out, shape.tokens(), shape.q_columns(), qkv.type},
          {"the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads, statistics_type(qkv.type)}});
}

}  // namespace stp
