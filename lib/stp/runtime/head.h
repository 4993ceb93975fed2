// The head's loss, and the sum of its gradient. Their collectives are inside the head's ops, so they run on
// all local ranks of a tensor-parallel group together, step by step.
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

/// F behind the linear layer: adds `factor` times the summed cross-entropy to each rank's loss.
void head_loss(const TensorGroup& group, const Op& op, double factor);
/// I behind the linear layer, whose gradient is op.output: sums it, or, with sequence parallelism, makes the
/// rank's rows of it and the norm's gradient.
void sum_head_gradient(const TensorGroup& group, const Op& op);

}  // namespace stp
