// The head's passes. Its collectives are inside its ops, so they run on all ranks of a tensor-parallel group
// that this process drives at once, step by step.
#pragma once

#include <span>

#include "stp/device/group.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// The ranks of one tensor-parallel group that this process drives, by place in it, and its groups.
struct TensorGroup {
  std::vector<RankState*> ranks;
  /// Of collectives that are ops; inside ops; and of what weight gradients gather again.
  std::unique_ptr<Group> ops, inside, again;
};

/// F, behind the norm, whose output is each rank's op.input, all rows, or with no sequence parallelism in
/// saved.normed: adds `factor` times the summed cross-entropy to each rank's loss.
void head_forward(const TensorGroup& group, const Op& op, double factor);
/// I: each rank's op.output is the gradient of the head's input: all of it, or, with sequence parallelism,
/// the rank's rows.
void head_input_gradient(const TensorGroup& group, const Op& op);

}  // namespace stp
