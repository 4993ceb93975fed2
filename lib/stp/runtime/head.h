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

/// Runs F after the linear layer: makes Between::maximum and Between::sums, of the group's logits.
void head_statistics(const TensorGroup& group, const Op& op);
/// Adds `factor` times the summed cross-entropy to each rank's loss; logits become their gradient. It uses
/// up the statistics.
void head_loss(const TensorGroup& group, const Op& op, double factor);
/// Runs I after the linear layer, which made op.output: sums this gradient over the group. With sequence
/// parallelism it then keeps the rank's rows and computes the norm's gradient from them.
void sum_head_gradient(const TensorGroup& group, const Op& op);

/// For S with one barrier, which knows the statistics of its own group alone: returns the exponentials of its
/// logits, and makes Between::target_rows. Call it after head_statistics().
Tensor exponentials(RankState& rank, const Op& op);

/// The ranks that share the vocabulary, one of each pipeline rank, and their streams for an op.
struct VocabularyPart {
  RankState& rank;
  Stream& stream;
};
/// Brings Between::maximum and Between::sums from a tensor-parallel group's logits to all ranks'. With one
/// barrier, op.output is the norm output's gradient by exponentials(): it becomes the rank's summand of the
/// gradient of the norm's input.
void merge_statistics(Group& group, std::span<const VocabularyPart> parts, const Op& op, double factor);

}  // namespace stp
