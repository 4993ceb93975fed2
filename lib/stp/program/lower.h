// From a Schedule to a Program: units, braids, transfers, and the optimizer step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stp/program/braid.h"
#include "stp/program/program.h"
#include "stp/program/units.h"
#include "stp/schedule/copy_plan.h"

namespace stp {

/// When a block's outputs leave (docs/architecture.md, section 5).
enum class Release {
  chain,     // each output leaves when its chain's main line is done
  block,     // outputs leave when the block's last op is done; its ops start when all its inputs are there
  released,  // the paper's published trainer: `block`; two forwards run one after the other with merged
             // transfers; a block waits for the sends of the block before it, unless it has only weight
             // gradients
  blocking,  // `released`, and a block of only weight gradients waits for these sends, too
  megatron,  // Megatron-Core to 0.17, overlap_p2p_comm: `block`; a block waits for the sends of the block
             // before it if both are forwards or both backwards (warm-up, flush), else for those of the third
             // block before it. Blocks of only weight gradients wait for none and do not count. With one
             // chunk a rank as megatron_batched
  megatron_0_18,  // from 0.18: with more chunks a backward also waits for the sends of the forward before it
  megatron_batched,  // batch_p2p_comm: as `blocking`
};

/// Whether Megatron-Core overlaps its transfers, if ranks have several chunks.
constexpr bool is_overlapped(Release release) {
  return release == Release::megatron || release == Release::megatron_0_18;
}
/// Whether Megatron-Core puts a point's transfers into one group and waits for it: with one chunk always.
constexpr bool is_batched(Release release, int chunks) {
  return release == Release::megatron_batched || (chunks == 1 && is_overlapped(release));
}

/// The order in which two chains are issued.
using BraidOrder =
    std::function<std::vector<BraidStep>(std::span<const Segment> a, std::span<const Segment> b)>;

struct Lowering {
  Release release = Release::chain;
  BackwardOrder backward = BackwardOrder::suite;
  bool optimizer = false;  // whether each rank ends with an optimizer step
  BraidPolicy braid = BraidPolicy::static_merge;
  BraidOrder order;            // for `timed` and `paired`
  CopyRequest copies;          // its costs and seconds, for copies that the strategy plans
  Strategy strategy;           // `zero` only with `data_parallel`
  bool data_parallel = false;  // each chunk's gradients are reduced after its last backward; for several
                               // replicas
  BucketRule buckets;          // for the first virtual stage, with `data_parallel`
  bool one_bucket_of_several_chunks = false;  // no buckets if a rank has more than one chunk
  bool embedding = false;                     // the first virtual stage has an embedding unit
  bool tied = false;      // the last virtual stage shares the embedding's weights; the two gradients are
                          // summed
  int vision_layers = 0;  // layers of the vision encoder on the first virtual stage; 0: none
};

/// The largest number of ops that a Program may have.
inline constexpr size_t kMaxOps = size_t{1} << 26;

/// Lowers a schedule that validate() has passed. `layers_per_stage` has one entry ≥ 0 per virtual stage. The
/// Program holds the schedule as it runs: without braids under BraidPolicy::sequential, with halves as its
/// microbatches under TpOverlap::domino. TpOverlap::flux gives the same ops as none. Throws InputError if
/// the number of entries is wrong, the vision encoder's stage has layers, or the Program would exceed
/// kMaxOps.
Program lower(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering);

/// The same without ops, streams and buckets: enough for bounds, and for the memory of a rank
/// (lib/stp/cost/memory.h).
Program outline(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering);
/// Throws InputError if the layers do not suit the schedule, or the schedule is not built with an option.
void check_lowering(const Schedule& schedule, const std::vector<int>& layers_per_stage,
                    const Lowering& lowering);

}  // namespace stp
