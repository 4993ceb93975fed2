// The head's passes. Its collectives are inside its ops, so each pass runs on all local ranks of a
// tensor-parallel group together, step by step.
#pragma once

#include <span>

#include "stp/device/group.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// The ranks of one tensor-parallel group that this process drives, by place in it, and its groups.
struct TensorGroup {
  std::vector<RankState*> ranks;
  /// For collectives that are ops, for those inside ops, and for the second all-gather for weight gradients.
  std::unique_ptr<Group> ops, inside, again;
};

/// F after the norm, whose output (all rows) is each rank's op.input or, without sequence parallelism,
/// saved.normed: adds `factor` times the summed cross-entropy to each rank's loss.
void head_forward(const TensorGroup& group, const Op& op, double factor);
/// I: each rank's op.output is the gradient of the head's input: all of it, or, with sequence parallelism,
/// the rank's rows.
void head_input_gradient(const TensorGroup& group, const Op& op);

}  // namespace stp
