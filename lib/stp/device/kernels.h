// The kernels that the model's units are made of. Each call gives one piece of work to a stream. Matrices are
// row-major; T tokens (batch · seq, samples one after the other) are rows. A shape or type that does not fit
// is a std::logic_error at the call. Weight-gradient kernels add to what is there; all others overwrite.
//
// Types. X, one of f32, f64 and bf16, is the type of a call's activations and their gradients, of logits, and
// of weights, gains, biases and tables. S = statistics_type(X), f32 for bf16, is that of statistics, the
// loss, the gradients of parameters, the optimizer's moments and its master weights. The norm's `total` is
// f64. Sums are taken in S at the least, and a bf16 result is rounded once, to the nearest, ties to even;
// attention alone may round its probabilities and their gradients to X before it multiplies them, as its
// implementations on matrix units do. Below, tensors are of X where nothing is said.
#pragma once

#include "stp/device/device.h"

namespace stp {

/// Rows of `qkv` are [q_heads · d | kv_heads · d | kv_heads · d], the share of this tensor-parallel rank.
struct AttentionShape {
  int batch, seq, q_heads, kv_heads, head_dim;
  [[nodiscard]] int64_t tokens() const { return int64_t{batch} * seq; }
  [[nodiscard]] int64_t q_columns() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_columns() const { return int64_t{kv_heads} * head_dim; }
  [[nodiscard]] int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
};

/// Decoupled weight decay (Loshchilov and Hutter); `step` counts from 1.
struct AdamW {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int step = 1;
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Whole tensors.
  virtual void fill(Stream& stream, const Tensor& tensor, double value) = 0;
  /// Both of one type.
  virtual void copy(Stream& stream, const Tensor& from, const Tensor& to) = 0;
  /// out = factor · in
  virtual void scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) = 0;
  /// Fails the run, naming `what`, if an element is not finite.
  virtual void check_finite(Stream& stream, const Tensor& tensor, const std::string& what) = 0;

  /// c = alpha · op(a) · op(b) + beta · c; op transposes where the flag says so. With beta 0, c may be
  /// uninitialised. c is of X (activations) or of S (gradients of weights).
  virtual void gemm(Stream& stream, bool transpose_a, bool transpose_b, double alpha, const Tensor& a,
                    const Tensor& b, double beta, const Tensor& c) = 0;

  // RMSNorm: y = x · rstd · gain, rstd = 1/√(mean(x²) + epsilon) per row, of S.
  virtual void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon,
                                const Tensor& y, const Tensor& rstd) = 0;
  /// dx = (∂y/∂x)ᵀ·dy + residual_factor · residual; gain_gradient (of S) += Σ_rows dy · x · rstd. `residual`
  /// may be empty. dx may be dy.
  virtual void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& rstd, double residual_factor, const Tensor& residual,
                                 const Tensor& dx, const Tensor& gain_gradient) = 0;

  /// qkv += bias (one row), then q and k are rotated in place by their position in the sample: pairs (i,
  /// i + d/2) by the angle position · theta^(−2i/d), as Qwen2 does.
  virtual void bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta,
                                 const Tensor& bias, const Tensor& qkv) = 0;
  /// The gradients of q and k are rotated back, in place.
  virtual void rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                             const Tensor& qkv_gradient) = 0;
  /// bias_gradient (of S) += Σ_rows gradient
  virtual void add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) = 0;

  /// Causal softmax(q·kᵀ/√d)·v per head, computed in blocks; out: T × q_columns; log_sum_exp: T × q_heads, of
  /// S. Query head j reads key head j / (q_heads / kv_heads).
  virtual void attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                 const Tensor& out, const Tensor& log_sum_exp) = 0;
  virtual void attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                  const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                                  const Tensor& qkv_gradient) = 0;

  /// gate_up rows are [gate | up], f columns each; out = silu(gate) · up.
  virtual void swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) = 0;
  virtual void swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                               const Tensor& gate_up_gradient) = 0;

  // Vocabulary-parallel embedding: this rank holds the rows [first, first + table.rows) of the table; tokens
  // is T × 1 of i32. Rows of other ranks' tokens come out zero, and are skipped backward. table_gradient is
  // of S.
  virtual void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                                 const Tensor& out) = 0;
  virtual void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient,
                                  int64_t first, const Tensor& table_gradient) = 0;

  // Vocabulary-parallel cross-entropy in three steps, with an all-reduce after the first (max) and the second
  // (sum). `logits` is T × this rank's entries; maximum T × 1, sums T × 2: Σ exp(logit − maximum), and the
  // target's logit where this rank holds it, else 0; both of S.
  virtual void row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) = 0;
  virtual void exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum,
                                const Tensor& targets, int64_t first, const Tensor& sums) = 0;
  /// loss (1 × 1, of S) += factor · Σ_rows (log Σ exp + maximum − target's logit); logits become their
  /// gradient, factor · (softmax − one-hot).
  virtual void cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                             int64_t first, double factor, const Tensor& logits, const Tensor& loss) = 0;

  /// total (1 × 1, f64) += factor · Σ x², x of any type but i32.
  virtual void add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) = 0;
  /// One step for one parameter: gradient · min(1, max_norm / √total) where `total` is given, decay, moments,
  /// update of `master`, and `weight` = master, rounded, where the two are not the same tensor. All of S but
  /// `weight`, which is of X: bf16 with a master, or the master itself.
  virtual void adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
                     const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
                     const Tensor& master, const Tensor& weight) = 0;
};

}  // namespace stp
