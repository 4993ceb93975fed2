#include "stp/device/kernel_check.h"

#include <stdexcept>

namespace stp::kernel {
namespace {

std::string shape_text(int64_t rows, int64_t columns, DType type) {
  return std::to_string(rows) + " x " + std::to_string(columns) + " " + to_string(type);
}

}  // namespace

void refuse(const char* kernel, const std::string& why) {
  throw std::logic_error(std::string(kernel) + ": " + why);
}

void expect(const char* kernel, const TensorView& x, std::initializer_list<Expected> others) {
  if (!x) refuse(kernel, "a tensor is empty");
  if (!x.held) refuse(kernel, "the memory of a tensor is used after its release");
  for (const Expected& other : others) {
    const auto& [name, tensor, rows, columns, type] = other;
    if (!tensor || tensor.rows != rows || tensor.columns != columns || tensor.type != type)
      refuse(kernel, std::string(name) + " is " +
                         (tensor ? shape_text(tensor.rows, tensor.columns, tensor.type) : "empty") +
                         ", not " + shape_text(rows, columns, type));
    if (!tensor.held) refuse(kernel, std::string(name) + " is used after its release");
  }
  if (x.type == DType::i32) refuse(kernel, "no kernel for " + to_string(x.type));
}

void expect_heads(const char* kernel, const AttentionShape& shape, bool rotated) {
  if (shape.batch >= 0 && shape.seq >= 0 && shape.q_heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
      shape.q_heads % shape.kv_heads == 0 &&
      (!rotated || (shape.rotated() > 0 && shape.rotated() % 2 == 0)) && (shape.causal || shape.cp == 1))
    return;
  refuse(kernel, "no attention of " + std::to_string(shape.batch) + " x " + std::to_string(shape.seq) +
                     " tokens with " + std::to_string(shape.q_heads) + " query heads and " +
                     std::to_string(shape.kv_heads) + " key heads of " + std::to_string(shape.head_dim) +
                     (rotated ? ", rotated" : "") + (shape.causal ? "" : ", without mask"));
}

void expect_block(const char* kernel, const AttentionShape& shape, const AttentionBlock& block,
                  const TensorView& kv, DType type) {
  expect(kernel, kv, {{"keys and values", kv, shape.tokens(), 2 * shape.kv_columns(), type}});
  if (block.first_query < 0 || block.first_query >= shape.seq || block.keys < 1 || block.keys > shape.seq)
    refuse(kernel, "no queries from " + std::to_string(block.first_query) + " on and " +
                       std::to_string(block.keys) + " keys in samples of " + std::to_string(shape.seq));
}

void expect_attention(const char* kernel, const AttentionShape& shape, const TensorView& qkv,
                      const TensorView& out, const TensorView& log_sum_exp) {
  expect_heads(kernel, shape, false);
  expect(kernel, qkv,
         {{"qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type},
          {"out", out, shape.tokens(), shape.q_columns(), qkv.type},
          {"the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads, statistics_type(qkv.type)}});
}

}  // namespace stp::kernel
