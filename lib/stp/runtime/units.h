// What passes of the paper's units (section 3) share, as kernels on one rank's streams; unit_run.h runs them.
// A unit saves exactly the tensors that lib/stp/model/work.h declares for `suite`.
//
// The residual is added before the all-reduce, one t-th on each of t ranks (equations 1 and 2): a forward
// computes Attn(LN(X)) + X/t, and the sum over the group is the unit's output. The backward is similar: the
// norm's Jacobian is linear, so each rank applies it to its own summand of the gradient and adds dY/t; the
// following all-reduce gives dX.
//
// With sequence parallelism a rank holds 1/t of the rows of X and of dX. The norm works on those rows; its
// output is gathered before the unit's forward, and dY before its backward. A forward adds the rank's rows of
// X to its own rows before the reduce-scatter; a backward applies the norm's Jacobian after it.
//
// With context parallelism a rank has two pieces of each sequence, as Transformer Engine divides it. Keys and
// values pass through all ranks of its ring (Liu et al., Ring Attention, arXiv 2310.01889). F and I of attn
// run part by part (UnitPart). Step s of the core works on the keys of the rank s places before. With
// CpMethod::all_to_all the core has one step, on whole sequences of this rank's share of the heads; the
// exchanged tensors keep their memory and only change their shape.
//
// A vision encoder's layers are units like a language model's, on tokens of their own: LayerNorm, attention
// without mask, an MLP of two matrices, and biases. As with the residual, each rank adds one t-th of the
// second linear layer's bias. The merger is such an MLP without residual: one row of its first linear layer
// is kTokensMerged consecutive rows of its norm's output.
//
// With tp_overlap, F and I of attn and mlp also run part by part. Step s of `before` works on the rows of the
// tensor-parallel rank s places before, which an exchange brings. Steps of F's `after` make output columns.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stp/device/kernels.h"
#include "stp/model/work.h"
#include "stp/program/program.h"
#include "stp/runtime/chunk_state.h"

namespace stp {

/// The tensors of one unit and microbatch: saved ones, of kind `saved`, and others. A tensor that does not
/// exist or was released is empty. With sequence parallelism the norm's tensors have this rank's rows.
class SavedUnit {
 public:
  Tensor& operator[](Saved which) { return saved_[static_cast<size_t>(which)]; }
  const Tensor& operator[](Saved which) const { return saved_[static_cast<size_t>(which)]; }
  Tensor& operator[](Between which) { return between_[static_cast<size_t>(which)]; }
  const Tensor& operator[](Between which) const { return between_[static_cast<size_t>(which)]; }
  std::vector<Tensor>& operator[](OfSteps which) { return of_steps_[static_cast<size_t>(which)]; }
  /// All tensors, also empty ones.
  [[nodiscard]] std::vector<Tensor> all() const;

  EventRef gathered_at;  // when Between::gathered is valid

 private:
  std::array<Tensor, kSavedTensors> saved_;
  std::array<Tensor, kBetween> between_;
  std::array<std::vector<Tensor>, kOfSteps> of_steps_;
};

/// Device, stream and options of one rank's units, of the language model or of its vision encoder.
struct UnitContext {
  Device& device;
  Stream& compute;
  const Training& training;
  int tp_index, cp_index;
  const Strategy& strategy;  // the Program's

  [[nodiscard]] int tp() const { return strategy.tp; }
  [[nodiscard]] int cp() const { return strategy.cp; }
  /// Tokens of a sample on one context-parallel rank.
  [[nodiscard]] int own_seq() const { return training.seq / cp(); }
  /// Rows of an activation: of all tensor-parallel ranks; of this rank, between units.
  [[nodiscard]] int64_t tokens() const { return int64_t{training.microbatch_size} * own_seq(); }
  [[nodiscard]] int64_t own_tokens() const { return strategy.sequence_parallel ? tokens() / tp() : tokens(); }
  [[nodiscard]] AttentionShape attention_shape() const;
  /// The rows of `all` that belong to the tensor-parallel rank `step` places before this one.
  [[nodiscard]] Tensor rows_of_step(const Tensor& all, int step) const;
  [[nodiscard]] Tensor make(Stream& stream, MemoryKind kind, int64_t rows, int64_t columns) const {
    return device.allocate(stream, kind, training.type, rows, columns);
  }
  void release(Stream& stream, Tensor& tensor) const {
    if (tensor) device.release(stream, tensor);
  }
  template <typename Kernel>
  void issue(Stream& stream, const Kernel& kernel) const {
    device.kernels().issue(stream, kernel);
  }
  /// Copies `count` columns of `from`, from from_column on, to those of `to` from to_column on.
  void copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                    int64_t to_column, int64_t count) const {
    issue(stream,
          kernel::CopyColumns{
              .from = from, .from_column = from_column, .to = to, .to_column = to_column, .count = count});
  }
};

/// Runs the norm before a unit, as work of `stream`. Takes ownership of `input`. Stores `input` in `saved`
/// with kind `of_input`, and the norm's statistics and output with kind `of_output`.
void norm_forward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                  Tensor input, SavedUnit& saved, MemoryKind of_input, MemoryKind of_output);
/// Replaces `gradient`, of the norm's output, by the gradient of its input plus `factor` · `residual` (if
/// given). Releases the norm's input and statistics, unless it `keeps` them.
void norm_backward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                   SavedUnit& saved, double factor, const Tensor& residual, const Tensor& gradient,
                   bool keeps = false);

void release_norm(const UnitContext& context, Stream& stream, SavedUnit& saved);

/// The rows that a step of a tensor-parallel ring works on: of the norm's output (F) or of the output's
/// gradient (I).
Tensor ring_rows(const UnitContext& context, const Op& op, const SavedUnit& saved);

/// Releases the keys and values of the core's steps. Call it when no exchange uses them any more: after the
/// last step of the core.
void release_kv(const UnitContext& context, Stream& stream, SavedUnit& saved);

/// Writes this rank's share of the image tokens into its summand of the embedding. Takes ownership of
/// `images`.
void add_images(const UnitContext& context, Tensor images, const Tensor& out);
/// Returns a copy of the rows of `gradient` that belong to images.
Tensor image_rows(const UnitContext& context, const Tensor& gradient);

}  // namespace stp
