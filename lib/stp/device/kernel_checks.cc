#include "stp/device/kernel_checks.h"

#include <stdexcept>
#include <string>

namespace stp::check {
namespace {

std::string shape_text(const Tensor& tensor) {
  return std::to_string(tensor.rows) + " x " + std::to_string(tensor.columns) + " " + to_string(tensor.type);
}

// Refuses a tensor that is not `rows` × `columns` of `type`.
void expect(const char* kernel, const char* name, const Tensor& tensor, int64_t rows, int64_t columns,
            DType type) {
  if (tensor && tensor.rows == rows && tensor.columns == columns && tensor.type == type) return;
  throw std::logic_error(std::string(kernel) + ": " + name + " is " +
                         (tensor ? shape_text(tensor) : "empty") + ", not " +
                         shape_text({nullptr, rows, columns, type}));
}

// What a shape must be by itself: query heads share key heads evenly, and halves of a head are rotated.
void expect_heads(const char* kernel, const AttentionShape& shape, bool rotated) {
  if (shape.batch >= 0 && shape.seq >= 0 && shape.q_heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
      shape.q_heads % shape.kv_heads == 0 && (!rotated || shape.head_dim % 2 == 0))
    return;
  throw std::logic_error(std::string(kernel) + ": no attention of " + std::to_string(shape.batch) + " x " +
                         std::to_string(shape.seq) + " tokens with " + std::to_string(shape.q_heads) +
                         " query heads and " + std::to_string(shape.kv_heads) + " key heads of " +
                         std::to_string(shape.head_dim) + (rotated ? ", rotated" : ""));
}

}  // namespace

void floating(const char* kernel, const Tensor& x) {
  if (!x) throw std::logic_error(std::string(kernel) + ": a tensor is empty");
  if (x.type == DType::i32)
    throw std::logic_error(std::string(kernel) + ": no kernel for " + to_string(x.type));
}

void copy(const Tensor& from, const Tensor& to) {
  expect("copy", "the target", to, from.rows, from.columns, from.type);
  floating("copy", from);
}

void scale(const Tensor& in, const Tensor& out) {
  expect("scale", "out", out, in.rows, in.columns, in.type);
  floating("scale", in);
}

GemmSize gemm(bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c) {
  const int64_t m = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns;
  const int64_t n = transpose_b ? b.rows : b.columns;
  expect("gemm", "b", b, transpose_b ? n : k, transpose_b ? k : n, a.type);
  expect("gemm", "c", c, m, n, c.type == a.type ? a.type : statistics_type(a.type));
  floating("gemm", a);
  return {m, n, k};
}

void rms_norm_forward(const Tensor& x, const Tensor& gain, const Tensor& y, const Tensor& rstd) {
  constexpr auto kKernel = "rms_norm_forward";
  expect(kKernel, "gain", gain, 1, x.columns, x.type);
  expect(kKernel, "y", y, x.rows, x.columns, x.type);
  expect(kKernel, "rstd", rstd, x.rows, 1, statistics_type(x.type));
  floating(kKernel, x);
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& rstd,
                       const Tensor& residual, const Tensor& dx, const Tensor& gain_gradient) {
  constexpr auto kKernel = "rms_norm_backward";
  expect(kKernel, "dy", dy, x.rows, x.columns, x.type);
  expect(kKernel, "gain", gain, 1, x.columns, x.type);
  expect(kKernel, "rstd", rstd, x.rows, 1, statistics_type(x.type));
  expect(kKernel, "dx", dx, x.rows, x.columns, x.type);
  expect(kKernel, "the gain's gradient", gain_gradient, 1, x.columns, statistics_type(x.type));
  if (residual) expect(kKernel, "residual", residual, x.rows, x.columns, x.type);
  floating(kKernel, x);
}

void bias_rope_forward(const AttentionShape& shape, const Tensor& bias, const Tensor& qkv) {
  constexpr auto kKernel = "bias_rope_forward";
  expect_heads(kKernel, shape, true);
  expect(kKernel, "bias", bias, 1, shape.qkv_columns(), qkv.type);
  expect(kKernel, "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
  floating(kKernel, qkv);
}

void rope_backward(const AttentionShape& shape, const Tensor& qkv_gradient) {
  constexpr auto kKernel = "rope_backward";
  expect_heads(kKernel, shape, true);
  expect(kKernel, "the gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv_gradient.type);
  floating(kKernel, qkv_gradient);
}

void add_column_sums(const Tensor& gradient, const Tensor& bias_gradient) {
  constexpr auto kKernel = "add_column_sums";
  expect(kKernel, "the sums", bias_gradient, 1, gradient.columns, statistics_type(gradient.type));
  floating(kKernel, gradient);
}

void attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp) {
  constexpr auto kKernel = "attention_forward";
  expect_heads(kKernel, shape, false);
  expect(kKernel, "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
  expect(kKernel, "out", out, shape.tokens(), shape.q_columns(), qkv.type);
  expect(kKernel, "the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads, statistics_type(qkv.type));
  floating(kKernel, qkv);
}

void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient) {
  constexpr auto kKernel = "attention_backward";
  expect_heads(kKernel, shape, false);
  expect(kKernel, "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
  expect(kKernel, "out", out, shape.tokens(), shape.q_columns(), qkv.type);
  expect(kKernel, "the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads, statistics_type(qkv.type));
  expect(kKernel, "out's gradient", out_gradient, shape.tokens(), shape.q_columns(), qkv.type);
  expect(kKernel, "qkv's gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv.type);
  floating(kKernel, qkv);
}

void swiglu_forward(const Tensor& gate_up, const Tensor& out) {
  constexpr auto kKernel = "swiglu_forward";
  expect(kKernel, "gate and up", gate_up, out.rows, 2 * out.columns, out.type);
  floating(kKernel, out);
}

void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient) {
  constexpr auto kKernel = "swiglu_backward";
  const Tensor& g = out_gradient;
  expect(kKernel, "gate and up", gate_up, g.rows, 2 * g.columns, g.type);
  expect(kKernel, "their gradient", gate_up_gradient, g.rows, 2 * g.columns, g.type);
  floating(kKernel, g);
}

void embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& out) {
  constexpr auto kKernel = "embedding_forward";
  expect(kKernel, "tokens", tokens, out.rows, 1, DType::i32);
  expect(kKernel, "out", out, out.rows, table.columns, table.type);
  floating(kKernel, table);
}

void embedding_backward(const Tensor& tokens, const Tensor& out_gradient, const Tensor& table_gradient) {
  constexpr auto kKernel = "embedding_backward";
  expect(kKernel, "tokens", tokens, out_gradient.rows, 1, DType::i32);
  expect(kKernel, "the table's gradient", table_gradient, table_gradient.rows, out_gradient.columns,
         statistics_type(out_gradient.type));
  floating(kKernel, out_gradient);
}

void row_maximum(const Tensor& logits, const Tensor& maximum) {
  constexpr auto kKernel = "row_maximum";
  if (logits.columns < 1) throw std::logic_error("row_maximum: logits are " + shape_text(logits));
  expect(kKernel, "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
  floating(kKernel, logits);
}

void exponential_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets,
                      const Tensor& sums) {
  constexpr auto kKernel = "exponential_sums";
  expect(kKernel, "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
  expect(kKernel, "targets", targets, logits.rows, 1, DType::i32);
  expect(kKernel, "sums", sums, logits.rows, 2, statistics_type(logits.type));
  floating(kKernel, logits);
}

void cross_entropy(const Tensor& maximum, const Tensor& sums, const Tensor& targets, const Tensor& logits,
                   const Tensor& loss) {
  constexpr auto kKernel = "cross_entropy";
  expect(kKernel, "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
  expect(kKernel, "sums", sums, logits.rows, 2, statistics_type(logits.type));
  expect(kKernel, "targets", targets, logits.rows, 1, DType::i32);
  expect(kKernel, "loss", loss, 1, 1, statistics_type(logits.type));
  floating(kKernel, logits);
}

void add_sum_of_squares(const Tensor& x, const Tensor& total) {
  constexpr auto kKernel = "add_sum_of_squares";
  expect(kKernel, "total", total, 1, 1, DType::f64);
  floating(kKernel, x);
}

bool adamw(const Tensor& total, const Tensor& gradient, const Tensor& first_moment,
           const Tensor& second_moment, const Tensor& master, const Tensor& weight) {
  constexpr auto kKernel = "adamw";
  const Tensor& g = gradient;
  expect(kKernel, "the first moment", first_moment, g.rows, g.columns, g.type);
  expect(kKernel, "the second moment", second_moment, g.rows, g.columns, g.type);
  expect(kKernel, "master", master, g.rows, g.columns, g.type);
  if (total) expect(kKernel, "total", total, 1, 1, DType::f64);
  const bool rounded = weight.memory != master.memory;
  const DType type = rounded ? DType::bf16 : g.type;
  expect(kKernel, rounded ? "the weight beside its master" : "the weight", weight, g.rows, g.columns, type);
  expect(kKernel, "the gradient", g, g.rows, g.columns, statistics_type(type));
  floating(kKernel, g);
  return rounded;
}

}  // namespace stp::check
