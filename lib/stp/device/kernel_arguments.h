// The kernels of the model's units. Each is a struct of its arguments with its name, the type X of the call,
// and a check; kernels.h gives it to a stream. What a new kernel needs: CONTRIBUTING.md.
//
// Matrices are row-major; rows are T tokens (batch · seq, samples one after the other). A wrong shape or
// type, or released memory, is a std::logic_error at the call, which names kernel and tensor. Weight-gradient
// kernels accumulate; all others overwrite.
//
// Types. X, one of f32, f64 and bf16, is the type of a call's activations and their gradients, logits,
// weights, gains, biases and tables. S = statistics_type(X), f32 for bf16, is the type of statistics, the
// loss, parameters' gradients, the optimizer's moments and master weights. The norm's `total` is f64. Sums
// use at least S, and a bf16 result is rounded once, to the nearest, ties to even. Only attention may round
// its probabilities and their gradients to X before it multiplies them, for matrix units. Below, tensors are
// of X unless stated otherwise.
#pragma once

#include <compare>
#include <string>
#include <tuple>

#include "stp/device/attention_shape.h"
#include "stp/device/kernel_check.h"
#include "stp/device/loss_arguments.h"
#include "stp/device/tensor.h"

namespace stp {

/// Decoupled weight decay (Loshchilov and Hutter); `step` counts from 1.
struct AdamW {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  int step = 1;
};

/// op(a) is m × k, op(b) k × n, and c m × n.
struct GemmShape {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

namespace kernel {

struct Fill {
  static constexpr auto name = "fill";
  TensorView tensor;
  double value;

  [[nodiscard]] DType type() const { return tensor.type; }
  void check() const { expect(name, tensor); }
};

/// Both have the same type. Either may be in the host's memory.
struct Copy {
  static constexpr auto name = "copy";
  TensorView from, to;

  [[nodiscard]] DType type() const { return from.type; }
  void check() const { expect(name, from, {{"the target", to, from.rows, from.columns, from.type}}); }
};

/// Columns [to_column, to_column + count) of `to` = the columns of `from` from from_column on. Both have the
/// same type and rows.
struct CopyColumns {
  static constexpr auto name = "copy_columns";
  TensorView from;
  int64_t from_column;
  TensorView to;
  int64_t to_column, count;

  [[nodiscard]] DType type() const { return from.type; }
  void check() const {
    expect(name, from, {{"the target", to, from.rows, to.columns, from.type}});
    if (from_column < 0 || to_column < 0 || count < 0 || from_column + count > from.columns ||
        to_column + count > to.columns)
      refuse(name, "columns beyond the end");
  }
};

/// out = factor · in
struct Scale {
  static constexpr auto name = "scale";
  double factor;
  TensorView in, out;

  [[nodiscard]] DType type() const { return in.type; }
  void check() const { expect(name, in, {{"out", out, in.rows, in.columns, in.type}}); }
};

/// The rows [first, first + in.rows) of out += in.
struct AddRows {
  static constexpr auto name = "add_rows";
  TensorView in;
  int64_t first;
  TensorView out;

  [[nodiscard]] DType type() const { return in.type; }
  void check() const {
    expect(name, in, {{"out", out, out.rows, in.columns, in.type}});
    if (first < 0 || first + in.rows > out.rows) refuse(name, "rows beyond the end of out");
  }
};

/// Fails the run, naming `what`, if an element is not finite.
struct CheckFinite {
  static constexpr auto name = "check_finite";
  TensorView tensor;
  std::string what;

  [[nodiscard]] DType type() const { return tensor.type; }
  void check() const { expect(name, tensor); }
};

/// c = alpha · op(a) · op(b) + beta · from; op transposes if the flag says so. `from` may be empty: c itself.
/// With beta 0 it is not read, and c may be uninitialised. The type of c and `from` is X (activations) or S
/// (weight gradients).
struct Gemm {
  static constexpr auto name = "gemm";
  bool transpose_a = false, transpose_b = false;
  double alpha = 1;
  TensorView a, b;
  double beta = 0;
  TensorView c, from = {};

  [[nodiscard]] GemmShape shape() const {
    return {transpose_a, transpose_b, transpose_a ? a.columns : a.rows, transpose_b ? b.rows : b.columns,
            transpose_a ? a.rows : a.columns};
  }
  [[nodiscard]] DType type() const { return a.type; }
  void check() const {
    const auto [ta, tb, m, n, k] = shape();
    const DType c_type = c.type == a.type ? a.type : statistics_type(a.type);
    expect(name, a, {{"b", b, tb ? n : k, tb ? k : n, a.type}, {"c", c, m, n, c_type}});
    if (from) expect(name, a, {{"what is added to", from, m, n, c_type}});
  }
};

// Norms, over the columns of each row.

/// y = (x − mean) · rstd · gain + bias, rstd = 1/√(variance + epsilon); `bias` may be empty. `centred`:
/// LayerNorm. Else RMSNorm: the mean counts as 0, and there is no bias. `statistics` (of S) has rows of mean
/// and rstd, with RMSNorm of rstd.
struct NormForward {
  static constexpr auto name = "norm_forward";
  bool centred;
  TensorView x, gain, bias;
  double epsilon;
  TensorView y, statistics;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const {
    expect(name, x,
           {{"gain", gain, 1, x.columns, x.type},
            {"y", y, x.rows, x.columns, x.type},
            {"the statistics", statistics, x.rows, centred ? 2 : 1, statistics_type(x.type)}});
    if (bias) expect(name, x, {{"bias", bias, centred ? 1 : 0, x.columns, x.type}});
  }
};

/// dx = (∂y/∂x)ᵀ·dy + residual_factor · residual; gain_gradient (of S) += Σ_rows dy · (x − mean) · rstd,
/// bias_gradient (of S), which may be empty, += Σ_rows dy. `residual` may be empty. dx may be dy.
struct NormBackward {
  static constexpr auto name = "norm_backward";
  bool centred;
  TensorView dy, x, gain, statistics;
  double residual_factor;
  TensorView residual, dx, gain_gradient, bias_gradient;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const {
    const DType sums = statistics_type(x.type);
    expect(name, x,
           {{"dy", dy, x.rows, x.columns, x.type},
            {"gain", gain, 1, x.columns, x.type},
            {"the statistics", statistics, x.rows, centred ? 2 : 1, sums},
            {"dx", dx, x.rows, x.columns, x.type},
            {"the gain's gradient", gain_gradient, 1, x.columns, sums}});
    if (residual) expect(name, x, {{"residual", residual, x.rows, x.columns, x.type}});
    if (bias_gradient)
      expect(name, x, {{"the bias's gradient", bias_gradient, centred ? 1 : 0, x.columns, sums}});
  }
};

// Between the linear layers of a unit.

/// Adds bias (one row, or empty) to qkv, then rotates q and k in place by their position in the sequence:
/// pairs (i, i + d/2) by the angle position · theta^(−2i/d), d = shape.rotated(), as Qwen2 does.
struct BiasRopeForward {
  static constexpr auto name = "bias_rope_forward";
  AttentionShape shape;
  double theta;
  TensorView bias, qkv;

  [[nodiscard]] DType type() const { return qkv.type; }
  void check() const {
    expect_heads(name, shape, true);
    expect(name, qkv, {{"qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type}});
    if (bias) expect(name, qkv, {{"bias", bias, 1, shape.qkv_columns(), qkv.type}});
  }
};

/// Rotates the gradients of q and k back, in place.
struct RopeBackward {
  static constexpr auto name = "rope_backward";
  AttentionShape shape;
  double theta;
  TensorView qkv_gradient;

  [[nodiscard]] DType type() const { return qkv_gradient.type; }
  void check() const {
    expect_heads(name, shape, true);
    expect(name, qkv_gradient,
           {{"the gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv_gradient.type}});
  }
};

/// Each row of x += factor · bias (one row).
struct AddBias {
  static constexpr auto name = "add_bias";
  double factor;
  TensorView bias, x;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const { expect(name, x, {{"bias", bias, 1, x.columns, x.type}}); }
};

/// bias_gradient (of S) += Σ_rows gradient
struct AddColumnSums {
  static constexpr auto name = "add_column_sums";
  TensorView gradient, bias_gradient;

  [[nodiscard]] DType type() const { return gradient.type; }
  void check() const {
    expect(name, gradient,
           {{"the sums", bias_gradient, 1, gradient.columns, statistics_type(gradient.type)}});
  }
};

/// out (T × q_columns) = softmax(q·kᵀ/√d)·v per head, computed in blocks, causal unless the shape says
/// otherwise. log_sum_exp is T × q_heads, of S. Query head j reads key head j / (q_heads / kv_heads).
///
/// In later steps of ring attention `kv` has another rank's keys and values, T × 2 kv_columns: rows
/// [kv_heads · d | kv_heads · d]. The attention of the block's queries to its keys is then merged into `out`
/// and `log_sum_exp`, which become those of a softmax over all keys so far.
struct AttentionForward {
  static constexpr auto name = "attention_forward";
  AttentionShape shape;
  TensorView qkv, out, log_sum_exp;
  AttentionBlock block = {};
  TensorView kv = {};

  [[nodiscard]] bool of_vision() const { return !shape.causal; }
  [[nodiscard]] DType type() const { return qkv.type; }
  void check() const {
    expect_attention(name, shape, qkv, out, log_sum_exp);
    if (kv) expect_block(name, shape, block, kv, qkv.type);
  }
};
/// In all steps of a ring with the final `out` and `log_sum_exp`. With `kv` it adds the block's part to the
/// gradient of q in `qkv_gradient`, whose other columns stay, and sets all rows of kv_gradient.
struct AttentionBackward {
  static constexpr auto name = "attention_backward";
  AttentionShape shape;
  TensorView qkv, out, log_sum_exp, out_gradient, qkv_gradient;
  AttentionBlock block = {};
  TensorView kv = {}, kv_gradient = {};

  [[nodiscard]] bool of_vision() const { return !shape.causal; }
  [[nodiscard]] DType type() const { return qkv.type; }
  void check() const {
    expect_attention(name, shape, qkv, out, log_sum_exp);
    expect(name, qkv,
           {{"out's gradient", out_gradient, shape.tokens(), shape.q_columns(), qkv.type},
            {"qkv's gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(), qkv.type}});
    if (!kv && !kv_gradient) return;
    expect_block(name, shape, block, kv, qkv.type);
    expect(name, qkv, {{"kv's gradient", kv_gradient, kv.rows, kv.columns, qkv.type}});
  }
};

/// gate_up rows are [gate | up], f columns each; out = silu(gate) · up.
struct SwigluForward {
  static constexpr auto name = "swiglu_forward";
  TensorView gate_up, out;

  [[nodiscard]] DType type() const { return out.type; }
  void check() const { expect(name, out, {{"gate and up", gate_up, out.rows, 2 * out.columns, out.type}}); }
};
struct SwigluBackward {
  static constexpr auto name = "swiglu_backward";
  TensorView gate_up, out_gradient, gate_up_gradient;

  [[nodiscard]] DType type() const { return out_gradient.type; }
  void check() const {
    const TensorView& g = out_gradient;
    expect(name, g,
           {{"gate and up", gate_up, g.rows, 2 * g.columns, g.type},
            {"their gradient", gate_up_gradient, g.rows, 2 * g.columns, g.type}});
  }
};

/// Of each element alone. `squared_relu`: max(x, 0)². `gelu`: x · Φ(x), Φ the normal distribution.
/// `gelu_tanh`: its approximation x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))) (arXiv 1606.08415).
enum class Pointwise : uint8_t { gelu, gelu_tanh, squared_relu };
/// Calls work(Gelu{}), or with another of a backend's types for these functions.
template <typename Gelu, typename GeluTanh, typename SquaredRelu, typename Work>
void with_function(Pointwise function, Work work) {
  switch (function) {
    case Pointwise::gelu:
      return work(Gelu{});
    case Pointwise::gelu_tanh:
      return work(GeluTanh{});
    case Pointwise::squared_relu:
      return work(SquaredRelu{});
  }
}

/// out = function(x)
struct ActivationForward {
  static constexpr auto name = "activation_forward";
  Pointwise function;
  TensorView x, out;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const { expect(name, x, {{"out", out, x.rows, x.columns, x.type}}); }
};
struct ActivationBackward {
  static constexpr auto name = "activation_backward";
  Pointwise function;
  TensorView x, out_gradient, x_gradient;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const {
    expect(name, x,
           {{"out's gradient", out_gradient, x.rows, x.columns, x.type},
            {"x's gradient", x_gradient, x.rows, x.columns, x.type}});
  }
};

// Vocabulary-parallel embedding: this rank holds the rows [first, first + table.rows) of the table; tokens is
// T × 1 of i32. The forward writes zero rows for other ranks' tokens; the backward skips them. table_gradient
// is of S.

struct EmbeddingForward {
  static constexpr auto name = "embedding_forward";
  TensorView tokens, table;
  int64_t first;
  TensorView out;

  [[nodiscard]] DType type() const { return table.type; }
  void check() const {
    expect(name, table,
           {{"tokens", tokens, out.rows, 1, DType::i32}, {"out", out, out.rows, table.columns, table.type}});
  }
};
struct EmbeddingBackward {
  static constexpr auto name = "embedding_backward";
  TensorView tokens, out_gradient;
  int64_t first;
  TensorView table_gradient;

  [[nodiscard]] DType type() const { return out_gradient.type; }
  void check() const {
    expect(name, out_gradient,
           {{"tokens", tokens, out_gradient.rows, 1, DType::i32},
            {"the table's gradient", table_gradient, table_gradient.rows, out_gradient.columns,
             statistics_type(out_gradient.type)}});
  }
};

// The optimizer.

/// total (1 × 1, f64) += factor · Σ x², x of any type but i32.
struct AddSumOfSquares {
  static constexpr auto name = "add_sum_of_squares";
  double factor;
  TensorView x, total;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const { expect(name, x, {{"total", total, 1, 1, DType::f64}}); }
};

/// One step for one parameter: gradient · min(1, max_norm / √total) if `total` is given, decay, moments,
/// update of `master`, and `weight` = master, rounded, if the two are different tensors. `weight` is of X:
/// bf16 with a master, or the master itself. All other tensors are of S.
struct AdamW {
  static constexpr auto name = "adamw";
  stp::AdamW options;
  double max_norm;
  TensorView total, gradient, first_moment, second_moment, master, weight;

  [[nodiscard]] bool has_master() const { return address(weight) != address(master); }
  [[nodiscard]] DType type() const { return has_master() ? DType::bf16 : gradient.type; }
  void check() const {
    const TensorView& g = gradient;
    expect(name, g,
           {{"the first moment", first_moment, g.rows, g.columns, g.type},
            {"the second moment", second_moment, g.rows, g.columns, g.type},
            {"master", master, g.rows, g.columns, g.type},
            {has_master() ? "the weight beside its master" : "the weight", weight, g.rows, g.columns, type()},
            {"the gradient", g, g.rows, g.columns, statistics_type(type())}});
    if (total) expect(name, g, {{"total", total, 1, 1, DType::f64}});
  }
};

/// Applies `use` to the name of each kernel, with commas between.
// clang-format off
#define STP_KERNELS(use) \
  use(Fill), use(Copy), use(CopyColumns), use(Scale), use(AddRows), use(CheckFinite), use(Gemm), \
  use(NormForward), use(NormBackward), use(BiasRopeForward), use(RopeBackward), use(AddBias), \
  use(AddColumnSums), use(AttentionForward), use(AttentionBackward), use(SwigluForward), \
  use(SwigluBackward), use(ActivationForward), use(ActivationBackward), use(EmbeddingForward), \
  use(EmbeddingBackward), use(ExponentialSums), use(RescaleRows), use(CrossEntropy), \
  use(AddSumOfSquares), use(AdamW)
// clang-format on

#define STP_KERNEL_TYPE(name) name
using All = std::tuple<STP_KERNELS(STP_KERNEL_TYPE)>;
#undef STP_KERNEL_TYPE

}  // namespace kernel

}  // namespace stp
