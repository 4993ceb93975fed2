// A lower bound on the step time of every schedule, without simulating one.
#pragma once

#include <vector>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/placement.h"

namespace stp {

/// Seconds that no order of passes on this placement and split beats, whatever it braids and however it
/// splits backwards. `activation_limit`, if not 0: the largest number of activations, (chunk, microbatch) of
/// the Program, that a rank may hold until W.
///
/// Let a rank's compute and contending collectives run at shares r_c and r_a while both run, and κ = min(1,
/// (1 − r_c) / r_a). The *effective work* of a pass, its compute + κ · its contending collectives, falls at
/// rate 1 at most: while only compute runs, only a collective (κ), or both (r_c + κ r_a ≤ 1). A pass has a
/// *head*, before which no op of it starts: the chains that its microbatch passes before, each alone; and a
/// *tail* that must follow its last op. So for each set of a rank's passes, of all microbatches,
///
///   step ≥ least head + effective work + max(least tail, the optimizer, which is compute, too).
///
/// Of the sets only {head ≥ ρ, tail ≥ θ} matter. The same holds with collectives + κ' · compute, and for
/// each single stream and link. With reductions of gradients, the set's work without I's last collectives
/// ends with a compute op that one of the chunk's reductions waits for.
///
/// Releases add to that:
/// - E (`blocking`, is_batched()): a block starts when the sends of the block before it are done; they start
///   when that block is done. Meanwhile the rank does nothing but, behind a block of W, the next block's
///   first gathers; and a link sends one tensor at a time, as does an adapter. The last block's two sends are
///   left out.
/// - `blocking`, `released`: before the least head of a backward a rank runs nothing but forwards, which do
///   not overlap, so that their collectives are exposed, under `released` also a transfer, which two
///   forwards may share. (E does not hold there: blocks of W run during transfers.)
/// - with a block without ops, and post-validation: nothing.
///
/// Memory: an activation lives from its F through all later stages and back, until its W; all lifetimes are
/// at most `activation_limit` times the step; and before the first backward that many forwards start at most.
///
/// Options: post-validation overlaps steps, so that neither heads nor tails count; offloading and its copies
/// add nothing; with microbatch factors heads and tails are those of the smallest. Two pipelines have their
/// own heads and tails, and `microbatches` each. The passes of a shared `vocabulary` are work without
/// head and tail on every rank.
double step_bound(const Placement& placement, int microbatches, const std::vector<int>& layers_per_stage,
                  const Lowering& lowering, const CostTable& table, const Contention& contention,
                  Vocabulary vocabulary, int activation_limit = 0);

}  // namespace stp
