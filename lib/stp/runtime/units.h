// The passes of the units of section 3 of the paper, as kernels on a compute stream. What a unit keeps for
// later passes is what lib/stp/model/work.h declares for the `suite` implementation, tensor by tensor.
//
// The residual is added before the all-reduce, one t-th on each of t ranks (equations 1 and 2): a forward
// puts out Attn(LN(X)) + X/t, the sum of which over the group is the unit's output. The backward goes the
// same way: the norm's Jacobian is linear, so each rank applies it to its own share of the gradient and adds
// dY/t, and the one all-reduce that follows gives dX.
#pragma once

#include <functional>

#include "stp/device/communicator.h"
#include "stp/runtime/chunk_state.h"

namespace stp {

/// What one unit of one microbatch keeps (kind `saved`). Empty tensors: not there, or no more.
struct SavedUnit {
  Tensor input, statistics, normed;        // the norm's
  Tensor qkv, attention, log_sum_exp;      // attn
  Tensor gate_up, activation;              // mlp
  Tensor logits_gradient;                  // head
  Tensor output_gradient, inner_gradient;  // made by I: of the unit's output; of qkv, or of gate and up
};

/// Where a rank's units run.
struct UnitContext {
  Device& device;
  Stream& compute;
  const Training& training;
  /// The tensor-parallel group, for the collectives inside the head's and the embedding's ops.
  Communicator& inline_group;

  [[nodiscard]] int tp() const { return training.grid.tp; }
  [[nodiscard]] int tp_index() const { return inline_group.index(); }
};

/// F of attn or mlp: takes over `input` (T × hidden); returns this rank's share of the output.
Tensor unit_forward(const UnitContext& context, Unit unit, const std::vector<ParameterState>& parameters,
                    Tensor input, SavedUnit& saved);
/// I of attn or mlp: takes over the gradient of the output; returns this rank's share of the input's.
Tensor unit_input_gradient(const UnitContext& context, Unit unit,
                           const std::vector<ParameterState>& parameters, Tensor output_gradient,
                           SavedUnit& saved);
/// W_early or W_late of any unit; the head has no early part.
void unit_weight_gradient(const UnitContext& context, Unit unit, UnitPass part,
                          const std::vector<ParameterState>& parameters, SavedUnit& saved);

/// F of the head: takes over `input`; adds `factor` times the summed cross-entropy to `loss`.
void head_forward(const UnitContext& context, const std::vector<ParameterState>& parameters, Tensor input,
                  const Tensor& targets, double factor, const Tensor& loss, SavedUnit& saved);
/// I of the head: the whole gradient of its input.
Tensor head_input_gradient(const UnitContext& context, const std::vector<ParameterState>& parameters,
                           SavedUnit& saved);

/// The embedding of `tokens`, whole on every rank.
Tensor embedding_forward(const UnitContext& context, const ParameterState& table, const Tensor& tokens);
/// Adds to the table's gradient, on `stream`, and gives `output_gradient` back there.
void embedding_gradient(const UnitContext& context, Stream& stream, const ParameterState& table,
                        const Tensor& tokens, Tensor output_gradient);

}  // namespace stp
