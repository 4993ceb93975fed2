// From a Schedule to a Program: units, braids, transfers, and the optimizer step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stp/program/braid.h"
#include "stp/program/program.h"
#include "stp/program/units.h"

namespace stp {

/// When a block's outputs leave (docs/architecture.md, section 5).
enum class Release {
  chain,     // each when the main line of its chain is done
  block,     // all when the block's last op is done; no op of a block starts before all its inputs are there
  released,  // the paper's published trainer: `block`; two forwards one after the other with merged
             // transfers; a block, unless it is weight gradients alone, starts only when the sends of the
             // block before it are done
  blocking,  // `released`, but weight gradients alone wait for these sends, too
};

/// The order in which two chains are issued.
using BraidOrder =
    std::function<std::vector<BraidStep>(std::span<const Segment> a, std::span<const Segment> b)>;

struct Lowering {
  Release release = Release::chain;
  BackwardOrder backward = BackwardOrder::suite;
  bool optimizer = false;  // whether each rank ends with an optimizer step
  BraidPolicy braid = BraidPolicy::static_merge;
  BraidOrder order;            // of `timed` and `paired`; other policies have their own
  Strategy strategy;           // `zero` only with `data_parallel`
  bool data_parallel = false;  // whether each chunk's gradients are reduced once its last backward is issued:
                               // where there are replicas
  BucketRule buckets;          // with `data_parallel`: of the first virtual stage
  bool embedding = false;      // whether the first virtual stage has it as a unit
  bool tied = false;           // whether the last one shares its weights: then their gradients are summed
  int vision_layers = 0;       // of a vision encoder, which is the first virtual stage; 0: none
};

/// The largest number of ops that a Program may have.
inline constexpr size_t kMaxOps = size_t{1} << 26;

/// Lowers a schedule that validate() has passed. `layers_per_stage` has one entry ≥ 0 per virtual stage.
/// The Program holds the schedule as it runs: under BraidPolicy::sequential without braids, under
/// TpOverlap::domino with halves as its microbatches. Under TpOverlap::flux it is as under none.
/// Throws InputError if their number is wrong, a vision encoder's stage has any, or the Program would have
/// more than kMaxOps ops.
Program lower(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering);

}  // namespace stp
