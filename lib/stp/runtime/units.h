// The passes of the units of section 3 of the paper, as kernels on one rank's streams. A unit saves exactly
// the tensors that lib/stp/model/work.h declares for the `suite` implementation.
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
// With context parallelism a rank has two pieces of each sequence, and keys and values pass all ranks of its
// ring (Liu et al., Ring Attention, arXiv 2310.01889; the pieces as Transformer Engine divides them). F and I
// of attn are then called part by part (UnitPart). Step s of the core works on the keys of the rank s places
// before. With CpMethod::all_to_all the core has one step instead, which works on the whole sequences of this
// rank's share of the heads; what is exchanged keeps its memory, and only its shape changes.
//
// A vision encoder's layers are units like a language model's, on tokens of its own: LayerNorm, attention
// without mask, an MLP of two matrices, and biases, of which each rank adds one t-th behind the second linear
// layer, as of the residual. The merger is such an MLP without residual: a row of its first linear layer are
// kTokensMerged rows of its norm's output, one after the other.
//
// With tp_overlap, F and I of attn and mlp are. Step s of `before` works on the rows of the tensor-parallel
// rank s places before, which an exchange has brought; steps of F's `after` make columns of the output.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stp/device/kernels.h"
#include "stp/model/work.h"
#include "stp/program/program.h"
#include "stp/runtime/chunk_state.h"

namespace stp {

/// Tensors of one unit and microbatch that are there between ops of one pass alone. Of kind `working`.
enum class Between : uint8_t {
  // With sequence parallelism: this rank's rows of the output's gradient, until the reduce-scatter; all rows
  // of the norm's output, for weight gradients and recomputation.
  residual,
  gathered,
  core_gradient,  // between parts: of the attention's output, or of the activation
  // With tp_overlap: all rows of the norm's output, where exchanges bring those of other ranks; columns of
  // the output, until they are summed; and this rank's rows of the output, while pieces are missing.
  ring,
  piece,
  output,
};
/// The same of the steps of a ring's core, by step. Of kind `working` or `communication`: the keys and values
/// that the step works on, their gradients by that step, and the sum of their gradients by the steps before,
/// which an exchange brings.
enum class OfSteps : uint8_t { kv, kv_gradients, kv_sums };

/// The tensors of one unit and microbatch: those that it saves, of kind `saved`, and others. Empty ones do
/// not exist or were released. With sequence parallelism the norm's have this rank's rows.
class SavedUnit {
 public:
  Tensor& operator[](Saved which) { return saved_[static_cast<size_t>(which)]; }
  const Tensor& operator[](Saved which) const { return saved_[static_cast<size_t>(which)]; }
  Tensor& operator[](Between which) { return between_[static_cast<size_t>(which)]; }
  const Tensor& operator[](Between which) const { return between_[static_cast<size_t>(which)]; }
  std::vector<Tensor>& operator[](OfSteps which) { return of_steps_[static_cast<size_t>(which)]; }
  /// All of them, empty ones too.
  [[nodiscard]] std::vector<Tensor> all() const;

  EventRef gathered_at;  // when Between::gathered is valid

 private:
  std::array<Tensor, kSavedTensors> saved_;
  std::array<Tensor, static_cast<size_t>(Between::output) + 1> between_;
  std::array<std::vector<Tensor>, static_cast<size_t>(OfSteps::kv_sums) + 1> of_steps_;
};

/// Device, stream and options of one rank's units: those of the language model, or of its vision encoder.
struct UnitContext {
  Device& device;
  Stream& compute;
  const Training& training;
  int tp_index, cp_index;
  const Strategy& strategy;  // the Program's

  [[nodiscard]] Division division() const { return strategy.division(); }
  [[nodiscard]] int tp() const { return training.grid.tp; }
  [[nodiscard]] int cp() const { return training.grid.cp; }
  /// Rows of an activation: of all tensor-parallel ranks, and those that this rank holds between units.
  [[nodiscard]] int64_t tokens() const { return training.tokens(); }
  [[nodiscard]] int64_t own_tokens() const { return strategy.sequence_parallel ? tokens() / tp() : tokens(); }
  [[nodiscard]] AttentionShape attention_shape() const;
  /// The rows of `all` that belong to the tensor-parallel rank `step` places before.
  [[nodiscard]] Tensor rows_of_step(const Tensor& all, int step) const;
  [[nodiscard]] Tensor make(Stream& stream, MemoryKind kind, int64_t rows, int64_t columns) const {
    return device.allocate(stream, kind, training.type, rows, columns);
  }
  void release(Stream& stream, Tensor& tensor) const {
    if (tensor) device.release(stream, tensor);
  }
};

/// The norm before a unit, as work of `stream`: takes ownership of `input`; stores it as a tensor of kind
/// `of_input`, and its statistics and the output as tensors of kind `of_output`, in `saved`.
void norm_forward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                  Tensor input, SavedUnit& saved, MemoryKind of_input, MemoryKind of_output);
/// `gradient`, of the norm's output, becomes that of its input plus `factor` · `residual` (if given).
/// Releases tensors that only this needs.
void norm_backward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                   SavedUnit& saved, double factor, const Tensor& residual, const Tensor& gradient);

/// The rows of the norm's output (F) or of the output's gradient (I) that a step of a tensor-parallel ring
/// works on.
Tensor ring_rows(const UnitContext& context, const Op& op, const SavedUnit& saved);

/// The keys and values that exchanges have brought. Once the last step of the core is done, no exchange uses
/// them any more.
void release_kv(const UnitContext& context, Stream& stream, SavedUnit& saved);

/// Adds this rank's share of the tokens of images to its summand of the embedding; takes ownership of
/// `images`.
void add_images(const UnitContext& context, Tensor images, const Tensor& out);
/// The rows of `gradient` that belong to images.
Tensor image_rows(const UnitContext& context, const Tensor& gradient);

}  // namespace stp
