// The head's loss, and the sum of its gradient. The head's ops contain their collectives, so they run on all
// local ranks of a tensor-parallel group together.
#pragma once

#include <span>

#include "stp/device/group.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// The ranks of a tensor-parallel group that this process drives, in the group's order, and their groups.
struct TensorGroup {
  std::vector<RankState*> ranks;
  /// Groups of the collectives that are ops, of those inside ops, and of all-gathers for weight gradients.
  std::unique_ptr<Group> ops, inside, again;
};

/// Runs F after the linear layer: adds `factor` times the summed cross-entropy to each rank's loss.
void head_loss(const TensorGroup& group, const Op& op, double factor);
/// Runs I after the linear layer, which made op.output: sums this gradient over the group. With sequence
/// parallelism it then keeps the rank's rows and computes the norm's gradient from them.
void sum_head_gradient(const TensorGroup& group, const Op& op);

}  // namespace stp
