// What the kernels of every backend refuse at the call: a std::logic_error that names the kernel and the
// tensor whose shape or type does not fit. One function for each kernel of kernels.h.
#pragma once

#include "stp/device/kernels.h"

namespace stp::check {

/// A tensor of any type but i32; what fill, check_finite and add_sum_of_squares ask of theirs.
void floating(const char* kernel, const Tensor& x);

void copy(const Tensor& from, const Tensor& to);
void scale(const Tensor& in, const Tensor& out);

/// op(a) is m × k, op(b) k × n, and c m × n.
struct GemmSize {
  int64_t m, n, k;
};
GemmSize gemm(bool transpose_a, bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& c);

void rms_norm_forward(const Tensor& x, const Tensor& gain, const Tensor& y, const Tensor& rstd);
void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& rstd,
                       const Tensor& residual, const Tensor& dx, const Tensor& gain_gradient);
void bias_rope_forward(const AttentionShape& shape, const Tensor& bias, const Tensor& qkv);
void rope_backward(const AttentionShape& shape, const Tensor& qkv_gradient);
void add_column_sums(const Tensor& gradient, const Tensor& bias_gradient);
void attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                       const Tensor& log_sum_exp);
void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                        const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient);
void swiglu_forward(const Tensor& gate_up, const Tensor& out);
void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient);
void embedding_forward(const Tensor& tokens, const Tensor& table, const Tensor& out);
void embedding_backward(const Tensor& tokens, const Tensor& out_gradient, const Tensor& table_gradient);
void row_maximum(const Tensor& logits, const Tensor& maximum);
void exponential_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Tensor& sums);
void cross_entropy(const Tensor& maximum, const Tensor& sums, const Tensor& targets, const Tensor& logits,
                   const Tensor& loss);
void add_sum_of_squares(const Tensor& x, const Tensor& total);
/// True if `weight` is another tensor than its master, which is rounded to it.
bool adamw(const Tensor& total, const Tensor& gradient, const Tensor& first_moment,
           const Tensor& second_moment, const Tensor& master, const Tensor& weight);

}  // namespace stp::check
