// Pass 2, braiding: the order in which the segments of a block's two chains are issued. Policies are chosen
// by name (docs/architecture.md, section 5).
#pragma once

#include <cstdint>
#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

enum class BraidPolicy {
  static_merge,  // "static", the paper's: static_braid()
  sequential,    // one action after the other: sequential_braids()
  timed,         // chosen by op times, which a Program does not have: lib/stp/cost/timed_braid.h
  paired,
};

constexpr bool is_by_times(BraidPolicy braid) {
  return braid == BraidPolicy::timed || braid == BraidPolicy::paired;
}

/// A place in the issue order of two chains: the chain that gives its next segment. With a barrier, that
/// segment waits for all ops before it.
struct BraidStep {
  uint8_t chain = 0;
  bool barrier = false;
  bool operator==(const BraidStep&) const = default;
};

/// The paper's static braid of chains of `na` and `nb` segments: take from the first if it is not exhausted
/// and (i·nb ≤ j·na or the second is exhausted), else from the second, where i and j count the segments
/// taken.
std::vector<BraidStep> static_braid(int na, int nb);

/// Returns the schedule without braids: each braided block becomes two blocks, the first action first. A
/// valid schedule stays valid.
Schedule sequential_braids(Schedule schedule);

/// Domino (DeepSpeed; arXiv 2409.15241): microbatch i becomes its halves 2i and 2i + 1. Each action becomes a
/// braid of its two halves, and a braided block two blocks, the first action first. A valid schedule stays
/// valid. Throws InputError if check_size() refuses the number of halves.
Schedule split_microbatches(Schedule schedule);

}  // namespace stp
