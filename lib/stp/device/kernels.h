// The kernels of the model's units. Each call gives one piece of work to a stream. Matrices are row-major; T
// tokens (batch · seq, samples one after the other) are rows. A shape or type that does not fit, or released
// memory, is a std::logic_error at the call, which names kernel and tensor. Weight-gradient kernels
// accumulate; all others overwrite.
//
// A kernel is a function here, which checks its arguments, and a run_ function of each backend, which does
// the work.
//
// Types. X, one of f32, f64 and bf16, is the type of a call's activations and their gradients, of logits, and
// of weights, gains, biases and tables. S = statistics_type(X), f32 for bf16, is that of statistics, the
// loss, the gradients of parameters, the optimizer's moments and its master weights. The norm's `total` is
// f64. Sums use at least S, and a bf16 result is rounded once, to the nearest, ties to even; only attention
// may round its probabilities and their gradients to X before it multiplies them, as its implementations on
// matrix units do. Below, tensors are of X unless stated otherwise.
#pragma once

#include <initializer_list>
#include <string>

#include "stp/device/device.h"

namespace stp {

/// Rows of `qkv` are [q_heads · d | kv_heads · d | kv_heads · d], this tensor-parallel rank's heads. With
/// context parallelism `seq` counts this rank's tokens of a sample: pieces cp_index and 2cp − 1 − cp_index of
/// the 2cp that its sequence is divided into. Only without it may attention be without mask.
struct AttentionShape {
  int batch, seq, q_heads, kv_heads, head_dim;
  int cp = 1, cp_index = 0;
  bool causal = true;
  [[nodiscard]] int64_t tokens() const { return int64_t{batch} * seq; }
  [[nodiscard]] int64_t q_columns() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_columns() const { return int64_t{kv_heads} * head_dim; }
  [[nodiscard]] int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
};

/// Where row `row` of the `seq` tokens that rank `cp_index` of `cp` has of a sample stands in its whole
/// sequence.
int64_t position_of(int cp, int cp_index, int64_t seq, int64_t row);

/// Of each sample: which of this rank's queries attend to which keys, all of them to each. The queries go on
/// to the sample's end, the keys begin with the first.
struct AttentionBlock {
  int first_query, keys;
};
/// What the rank of `shape` attends to of the keys of rank `other` of its ring: all queries to its first
/// piece, which is before both of the own, if other < cp_index, else the second own piece to both of its
/// pieces.
AttentionBlock attention_block(const AttentionShape& shape, int other);

/// Decoupled weight decay (Loshchilov and Hutter); `step` counts from 1.
struct AdamW {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int step = 1;
};

/// op(a) is m × k, op(b) k × n, and c m × n.
struct GemmShape {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Whole tensors.
  void fill(Stream& stream, const Tensor& tensor, double value) {
    expect("fill", tensor);
    run_fill(stream, tensor, value);
  }
  /// The columns [to_column, to_column + count) of `to` = those from from_column on of `from`. Both have the
  /// same type and rows.
  void copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                    int64_t to_column, int64_t count) {
    expect("copy_columns", from, {{"the target", to, from.rows, to.columns, from.type}});
    if (from_column < 0 || to_column < 0 || count < 0 || from_column + count > from.columns ||
        to_column + count > to.columns)
      refuse("copy_columns", "columns beyond the end");
    run_copy_columns(stream, from, from_column, to, to_column, count);
  }
  /// Both have the same type.
  void copy(Stream& stream, const Tensor& from, const Tensor& to) {
    expect("copy", from, {{"the target", to, from.rows, from.columns, from.type}});
    run_copy(stream, from, to);
  }
  /// out = factor · in
  void scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) {
    expect("scale", in, {{"out", out, in.rows, in.columns, in.type}});
    run_scale(stream, factor, in, out);
  }
  /// The rows [first, first + in.rows) of out += in.
  void add_rows(Stream& stream, const Tensor& in, int64_t first, const Tensor& out) {
    expect("add_rows", in, {{"out", out, out.rows, in.columns, in.type}});
    if (first < 0 || first + in.rows > out.rows) refuse("add_rows", "rows beyond the end of out");
    run_add_rows(stream, in, first, out);
  }
  /// Fails the run, naming `what`, if an element is not finite.
  void check_finite(Stream& stream, const Tensor& tensor, const std::string& what) {
    expect("check_finite", tensor);
    run_check_finite(stream, tensor, what);
  }

  /// c = alpha · op(a) · op(b) + beta · c; op transposes where the flag says so. With beta 0, c may be
  /// uninitialised. c is of X (activations) or of S (gradients of weights).
  void gemm(Stream& stream, bool transpose_a, bool transpose_b, double alpha, const Tensor& a,
            const Tensor& b, double beta, const Tensor& c) {
    const GemmShape shape{transpose_a, transpose_b, transpose_a ? a.columns : a.rows,
                          transpose_b ? b.rows : b.columns, transpose_a ? a.rows : a.columns};
    const DType c_type = c.type == a.type ? a.type : statistics_type(a.type);
    expect("gemm", a,
           {{"b", b, transpose_b ? shape.n : shape.k, transpose_b ? shape.k : shape.n, a.type},
            {"c", c, shape.m, shape.n, c_type}});
    run_gemm(stream, shape, alpha, a, b, beta, c);
  }

  /// RMSNorm: y = x · rstd · gain, rstd = 1/√(mean(x²) + epsilon) per row, of S.
  void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon, const Tensor& y,
                        const Tensor& rstd) {
    expect("rms_norm_forward", x,
           {{"gain", gain, 1, x.columns, x.type},
            {"y", y, x.rows, x.columns, x.type},
            {"rstd", rstd, x.rows, 1, statistics_type(x.type)}});
    run_rms_norm_forward(stream, x, gain, epsilon, y, rstd);
  }
  /// dx = (∂y/∂x)ᵀ·dy + residual_factor · residual; gain_gradient (of S) += Σ_rows dy · x · rstd. `residual`
  /// may be empty. dx may be dy.
  void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                         const Tensor& rstd, double residual_factor, const Tensor& residual, const Tensor& dx,
                         const Tensor& gain_gradient) {
    expect("rms_norm_backward", x,
           {{"dy", dy, x.rows, x.columns, x.type},
            {"gain", gain, 1, x.columns, x.type},
            {"rstd", rstd, x.rows, 1, statistics_type(x.type)},
            {"dx", dx, x.rows, x.columns, x.type},
            {"the gain's gradient", gain_gradient, 1, x.columns, statistics_type(x.type)}});
    if (residual) expect("rms_norm_backward", x, {{"residual", residual, x.rows, x.columns, x.type}});
    run_rms_norm_backward(stream, dy, x, gain, rstd, residual_factor, residual, dx, gain_gradient);
  }

  /// LayerNorm: y = (x − mean) · rstd · gain + bias, rstd = 1/√(variance + epsilon) per row; statistics (of
  /// S): rows of mean and rstd. Like other kernels that say so, it exists only if vision() is true.
  void layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, const Tensor& bias,
                          double epsilon, const Tensor& y, const Tensor& statistics) {
    expect("layer_norm_forward", x,
           {{"gain", gain, 1, x.columns, x.type},
            {"bias", bias, 1, x.columns, x.type},
            {"y", y, x.rows, x.columns, x.type},
            {"the statistics", statistics, x.rows, 2, statistics_type(x.type)}});
    run_layer_norm_forward(stream, x, gain, bias, epsilon, y, statistics);
  }
  /// dx = (∂y/∂x)ᵀ·dy + residual_factor · residual; gain_gradient (of S) += Σ_rows dy · (x − mean) · rstd,
  /// bias_gradient (of S) += Σ_rows dy. `residual` may be empty. dx may be dy.
  void layer_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                           const Tensor& statistics, double residual_factor, const Tensor& residual,
                           const Tensor& dx, const Tensor& gain_gradient, const Tensor& bias_gradient) {
    expect("layer_norm_backward", x,
           {{"dy", dy, x.rows, x.columns, x.type},
            {"gain", gain, 1, x.columns, x.type},
            {"the statistics", statistics, x.rows, 2, statistics_type(x.type)},
            {"dx", dx, x.rows, x.columns, x.type},
            {"the gain's gradient", gain_gradient, 1, x.columns, statistics_type(x.type)},
            {"the bias's gradient", bias_gradient, 1, x.columns, statistics_type(x.type)}});
    if (residual) expect("layer_norm_backward", x, {{"residual", residual, x.rows, x.columns, x.type}});
    run_layer_norm_backward(stream, dy, x, gain, statistics, residual_factor, residual, dx, gain_gradient,
                            bias_gradient);
  }
  /// Whether this backend has the kernels of vision encoders: layer_norm_…(), gelu_…(), add_bias(), and
  /// attention without mask.
  [[nodiscard]] virtual bool vision() const { return false; }

  /// qkv += bias (one row), then q and k are rotated in place by their position in the sequence: pairs (i,
  /// i + d/2) by the angle position · theta^(−2i/d), as Qwen2 does.
  void bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& bias,
                         const Tensor& qkv) {
    expect_heads("bias_rope_forward", shape, true);
    expect("bias_rope_forward", qkv,
           {{"bias", bias, 1, shape.qkv_columns(), qkv.type},
            {"qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type}});
    run_bias_rope_forward(stream, shape, theta, bias, qkv);
  }
  /// The gradients of q and k are rotated back, in place.
  void rope_backward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& qkv_gradient) {
    expect_heads("rope_backward", shape, true);
    expect("rope_backward", qkv_gradient,
           {{"the gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv_gradient.type}});
    run_rope_backward(stream, shape, theta, qkv_gradient);
  }
  /// Each row of x += factor · bias (one row). Only where vision().
  void add_bias(Stream& stream, double factor, const Tensor& bias, const Tensor& x) {
    expect("add_bias", x, {{"bias", bias, 1, x.columns, x.type}});
    run_add_bias(stream, factor, bias, x);
  }
  /// bias_gradient (of S) += Σ_rows gradient
  void add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) {
    expect("add_column_sums", gradient,
           {{"the sums", bias_gradient, 1, gradient.columns, statistics_type(gradient.type)}});
    run_add_column_sums(stream, gradient, bias_gradient);
  }

  /// softmax(q·kᵀ/√d)·v per head, causal unless the shape says otherwise (only where vision()), computed in
  /// blocks; out: T × q_columns; log_sum_exp: T × q_heads, of S. Query head j reads key head j / (q_heads /
  /// kv_heads).
  void attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& log_sum_exp) {
    expect_attention("attention_forward", shape, qkv, out, log_sum_exp);
    if (!shape.causal && !vision()) refuse_vision();
    run_attention_forward(stream, shape, qkv, out, log_sum_exp);
  }
  void attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                          const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient) {
    expect_attention("attention_backward", shape, qkv, out, log_sum_exp);
    if (!shape.causal && !vision()) refuse_vision();
    expect("attention_backward", qkv,
           {{"out's gradient", out_gradient, shape.tokens(), shape.q_columns(), qkv.type},
            {"qkv's gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv.type}});
    run_attention_backward(stream, shape, qkv, out, log_sum_exp, out_gradient, qkv_gradient);
  }

  // Steps of ring attention after the first, which is attention_forward() or, given the final `out` and
  // `log_sum_exp`, attention_backward(). `kv` has the keys and values of another rank, T × 2 kv_columns: rows
  // [kv_heads · d | kv_heads · d].

  /// Merges into `out` and `log_sum_exp` what the queries of the block gain from its keys, as if the softmax
  /// had been over all keys so far.
  void attention_merge_forward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                               const Tensor& qkv, const Tensor& kv, const Tensor& out,
                               const Tensor& log_sum_exp) {
    expect_attention("attention_merge_forward", shape, qkv, out, log_sum_exp);
    expect_block("attention_merge_forward", shape, block, kv, qkv.type);
    run_attention_merge_forward(stream, shape, block, qkv, kv, out, log_sum_exp);
  }
  /// Adds the block's part to the gradient of q, in `qkv_gradient`, whose other columns stay; kv_gradient
  /// becomes that of all rows of kv.
  void attention_merge_backward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                                const Tensor& qkv, const Tensor& kv, const Tensor& out,
                                const Tensor& log_sum_exp, const Tensor& out_gradient,
                                const Tensor& qkv_gradient, const Tensor& kv_gradient) {
    expect_attention("attention_merge_backward", shape, qkv, out, log_sum_exp);
    expect_block("attention_merge_backward", shape, block, kv, qkv.type);
    expect("attention_merge_backward", qkv,
           {{"out's gradient", out_gradient, shape.tokens(), shape.q_columns(), qkv.type},
            {"qkv's gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv.type},
            {"kv's gradient", kv_gradient, shape.tokens(), 2 * shape.kv_columns(), qkv.type}});
    run_attention_merge_backward(stream, shape, block, qkv, kv, out, log_sum_exp, out_gradient, qkv_gradient,
                                 kv_gradient);
  }

  /// gate_up rows are [gate | up], f columns each; out = silu(gate) · up.
  void swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) {
    expect("swiglu_forward", out, {{"gate and up", gate_up, out.rows, 2 * out.columns, out.type}});
    run_swiglu_forward(stream, gate_up, out);
  }
  void swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                       const Tensor& gate_up_gradient) {
    const Tensor& g = out_gradient;
    expect("swiglu_backward", g,
           {{"gate and up", gate_up, g.rows, 2 * g.columns, g.type},
            {"their gradient", gate_up_gradient, g.rows, 2 * g.columns, g.type}});
    run_swiglu_backward(stream, gate_up, out_gradient, gate_up_gradient);
  }

  /// out = gelu(x) = x · Φ(x), Φ the normal distribution. This and its backward only where vision().
  void gelu_forward(Stream& stream, const Tensor& x, const Tensor& out) {
    expect("gelu_forward", x, {{"out", out, x.rows, x.columns, x.type}});
    run_gelu_forward(stream, x, out);
  }
  void gelu_backward(Stream& stream, const Tensor& x, const Tensor& out_gradient, const Tensor& x_gradient) {
    expect("gelu_backward", x,
           {{"out's gradient", out_gradient, x.rows, x.columns, x.type},
            {"x's gradient", x_gradient, x.rows, x.columns, x.type}});
    run_gelu_backward(stream, x, out_gradient, x_gradient);
  }

  // Vocabulary-parallel embedding: this rank holds the rows [first, first + table.rows) of the table; tokens
  // is T × 1 of i32. Rows of other ranks' tokens become zero, and are skipped in the backward. table_gradient
  // is of S.
  void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                         const Tensor& out) {
    expect("embedding_forward", table,
           {{"tokens", tokens, out.rows, 1, DType::i32}, {"out", out, out.rows, table.columns, table.type}});
    run_embedding_forward(stream, tokens, table, first, out);
  }
  void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient, int64_t first,
                          const Tensor& table_gradient) {
    expect("embedding_backward", out_gradient,
           {{"tokens", tokens, out_gradient.rows, 1, DType::i32},
            {"the table's gradient", table_gradient, table_gradient.rows, out_gradient.columns,
             statistics_type(out_gradient.type)}});
    run_embedding_backward(stream, tokens, out_gradient, first, table_gradient);
  }

  // Vocabulary-parallel cross-entropy in three steps, with an all-reduce after the first (max) and the second
  // (sum). `logits` is T × this rank's entries; maximum T × 1, sums T × 2: Σ exp(logit − maximum), and the
  // target's logit where this rank holds it, else 0; both of S.
  void row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) {
    if (logits.columns < 1) refuse("row_maximum", "logits have no columns");
    expect("row_maximum", logits, {{"maximum", maximum, logits.rows, 1, statistics_type(logits.type)}});
    run_row_maximum(stream, logits, maximum);
  }
  void exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum, const Tensor& targets,
                        int64_t first, const Tensor& sums) {
    expect("exponential_sums", logits,
           {{"maximum", maximum, logits.rows, 1, statistics_type(logits.type)},
            {"targets", targets, logits.rows, 1, DType::i32},
            {"sums", sums, logits.rows, 2, statistics_type(logits.type)}});
    run_exponential_sums(stream, logits, maximum, targets, first, sums);
  }
  /// loss (1 × 1, of S) += factor · Σ_rows (log Σ exp + maximum − target's logit); logits become their
  /// gradient, factor · (softmax − one-hot).
  void cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     int64_t first, double factor, const Tensor& logits, const Tensor& loss) {
    expect("cross_entropy", logits,
           {{"maximum", maximum, logits.rows, 1, statistics_type(logits.type)},
            {"sums", sums, logits.rows, 2, statistics_type(logits.type)},
            {"targets", targets, logits.rows, 1, DType::i32},
            {"loss", loss, 1, 1, statistics_type(logits.type)}});
    run_cross_entropy(stream, maximum, sums, targets, first, factor, logits, loss);
  }

  /// total (1 × 1, f64) += factor · Σ x², x of any type but i32.
  void add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) {
    expect("add_sum_of_squares", x, {{"total", total, 1, 1, DType::f64}});
    run_add_sum_of_squares(stream, factor, x, total);
  }
  /// One step for one parameter: gradient · min(1, max_norm / √total) where `total` is given, decay, moments,
  /// update of `master`, and `weight` = master, rounded, where the two are not the same tensor. All of S but
  /// `weight`, which is of X: bf16 with a master, or the master itself.
  void adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
             const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
             const Tensor& master, const Tensor& weight) {
    const Tensor& g = gradient;
    const bool rounded = address(weight) != address(master);
    const DType type = rounded ? DType::bf16 : g.type;
    expect("adamw", g,
           {{"the first moment", first_moment, g.rows, g.columns, g.type},
            {"the second moment", second_moment, g.rows, g.columns, g.type},
            {"master", master, g.rows, g.columns, g.type},
            {rounded ? "the weight beside its master" : "the weight", weight, g.rows, g.columns, type},
            {"the gradient", g, g.rows, g.columns, statistics_type(type)}});
    if (total) expect("adamw", g, {{"total", total, 1, 1, DType::f64}});
    run_adamw(stream, options, max_norm, total, gradient, first_moment, second_moment, master, weight);
  }

 protected:
  struct Expected {
    const char* name;
    const Tensor& tensor;
    int64_t rows, columns;
    DType type;
  };
  /// Refuses `x` if it is empty, released or of i32, then all others that are not as expected.
  static void expect(const char* kernel, const Tensor& x, std::initializer_list<Expected> others = {});
  /// Query heads must share key heads evenly; for rotation, head_dim must be even.
  static void expect_heads(const char* kernel, const AttentionShape& shape, bool rotated);
  static void expect_attention(const char* kernel, const AttentionShape& shape, const Tensor& qkv,
                               const Tensor& out, const Tensor& log_sum_exp);
  static void expect_block(const char* kernel, const AttentionShape& shape, const AttentionBlock& block,
                           const Tensor& kv, DType type);
  [[noreturn]] static void refuse_vision();
  [[noreturn]] static void refuse(const char* kernel, const std::string& why);

 private:
  virtual void run_fill(Stream& stream, const Tensor& tensor, double value) = 0;
  virtual void run_copy(Stream& stream, const Tensor& from, const Tensor& to) = 0;
  virtual void run_copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                                int64_t to_column, int64_t count) = 0;
  virtual void run_attention_merge_forward(Stream& stream, const AttentionShape& shape,
                                           const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                                           const Tensor& out, const Tensor& log_sum_exp) = 0;
  virtual void run_attention_merge_backward(Stream& stream, const AttentionShape& shape,
                                            const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                                            const Tensor& out, const Tensor& log_sum_exp,
                                            const Tensor& out_gradient, const Tensor& qkv_gradient,
                                            const Tensor& kv_gradient) = 0;
  virtual void run_layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, const Tensor& bias,
                                      double epsilon, const Tensor& y, const Tensor& statistics);
  virtual void run_layer_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                       const Tensor& statistics, double residual_factor,
                                       const Tensor& residual, const Tensor& dx, const Tensor& gain_gradient,
                                       const Tensor& bias_gradient);
  virtual void run_add_bias(Stream& stream, double factor, const Tensor& bias, const Tensor& x);
  virtual void run_gelu_forward(Stream& stream, const Tensor& x, const Tensor& out);
  virtual void run_gelu_backward(Stream& stream, const Tensor& x, const Tensor& out_gradient,
                                 const Tensor& x_gradient);
  virtual void run_scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) = 0;
  virtual void run_add_rows(Stream& stream, const Tensor& in, int64_t first, const Tensor& out) = 0;
  virtual void run_check_finite(Stream& stream, const Tensor& tensor, const std::string& what) = 0;
  virtual void run_gemm(Stream& stream, const GemmShape& shape, double alpha, const Tensor& a,
                        const Tensor& b, double beta, const Tensor& c) = 0;
  virtual void run_rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon,
                                    const Tensor& y, const Tensor& rstd) = 0;
  virtual void run_rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                                     const Tensor& rstd, double residual_factor, const Tensor& residual,
                                     const Tensor& dx, const Tensor& gain_gradient) = 0;
  virtual void run_bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta,
                                     const Tensor& bias, const Tensor& qkv) = 0;
  virtual void run_rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                                 const Tensor& qkv_gradient) = 0;
  virtual void run_add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) = 0;
  virtual void run_attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                     const Tensor& out, const Tensor& log_sum_exp) = 0;
  virtual void run_attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                                      const Tensor& out, const Tensor& log_sum_exp,
                                      const Tensor& out_gradient, const Tensor& qkv_gradient) = 0;
  virtual void run_swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) = 0;
  virtual void run_swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                                   const Tensor& gate_up_gradient) = 0;
  virtual void run_embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                                     const Tensor& out) = 0;
  virtual void run_embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient,
                                      int64_t first, const Tensor& table_gradient) = 0;
  virtual void run_row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) = 0;
  virtual void run_exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum,
                                    const Tensor& targets, int64_t first, const Tensor& sums) = 0;
  virtual void run_cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums,
                                 const Tensor& targets, int64_t first, double factor, const Tensor& logits,
                                 const Tensor& loss) = 0;
  virtual void run_add_sum_of_squares(Stream& stream, double factor, const Tensor& x,
                                      const Tensor& total) = 0;
  virtual void run_adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
                         const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
                         const Tensor& master, const Tensor& weight) = 0;
};

}  // namespace stp
