// The arguments of the loss's kernels.
#pragma once

#include "stp/device/kernel_check.h"
#include "stp/device/tensor.h"

namespace stp::kernel {

// Vocabulary-parallel cross-entropy, which reads the logits twice: ExponentialSums, an all-reduce of the
// maxima, RescaleRows, an all-reduce of the sums, CrossEntropy. `logits` has this rank's entries of the
// vocabulary, from entry `first` on, for T rows. maximum is T × 1. sums is T × 2: Σ exp(logit − maximum), and
// the target's logit if this rank holds it, else 0. Both are of S. X and S: kernel_arguments.h.

/// By the maximum of the rank's own entries, which goes to `maximum` and `own`: an all-reduce replaces one.
struct ExponentialSums {
  static constexpr auto name = "exponential_sums";
  TensorView logits, targets;
  int64_t first;
  TensorView maximum, own, sums;

  [[nodiscard]] DType type() const { return logits.type; }
  void check() const {
    if (logits.columns < 1) refuse(name, "logits have no columns");
    const DType statistics = statistics_type(logits.type);
    expect(name, logits,
           {{"targets", targets, logits.rows, 1, DType::i32},
            {"maximum", maximum, logits.rows, 1, statistics},
            {"own", own, logits.rows, 1, statistics},
            {"sums", sums, logits.rows, 2, statistics}});
  }
};
/// From a rank's own entries to those of all ranks (online softmax, arXiv 2411.05288, section 4): the first
/// `columns` columns of x *= factor · exp(own − maximum), also / Σ exp if `sums` is given. Both are T × 1. x
/// is of X, or sums themselves.
struct RescaleRows {
  static constexpr auto name = "rescale_rows";
  TensorView own, maximum, sums;
  double factor;
  TensorView x;
  int64_t columns;

  [[nodiscard]] DType type() const { return x.type; }
  void check() const {
    const DType statistics = statistics_type(x.type);
    expect(name, x, {{"own", own, x.rows, 1, statistics}, {"maximum", maximum, x.rows, 1, statistics}});
    if (sums) expect(name, x, {{"sums", sums, x.rows, 2, statistics}});
    if (columns < 1 || columns > x.columns) refuse(name, "no columns, or columns beyond the end");
  }
};
/// loss (1 × 1, of S) += factor · Σ_rows (log Σ exp + maximum − target's logit); logits become their
/// gradient, factor · (softmax − one-hot). Without sums, targets and loss: factor · exp(logit − maximum).
struct CrossEntropy {
  static constexpr auto name = "cross_entropy";
  TensorView maximum, sums, targets;
  int64_t first;
  double factor;
  TensorView logits, loss;

  [[nodiscard]] DType type() const { return logits.type; }
  void check() const {
    expect(name, logits, {{"maximum", maximum, logits.rows, 1, statistics_type(logits.type)}});
    if (!sums && !targets && !loss) return;
    expect(name, logits,
           {{"sums", sums, logits.rows, 2, statistics_type(logits.type)},
            {"targets", targets, logits.rows, 1, DType::i32},
            {"loss", loss, 1, 1, statistics_type(logits.type)}});
  }
};

}  // namespace stp::kernel
