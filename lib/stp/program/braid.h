// Pass 2, braiding: the order in which the segments of a block's two chains are issued. Policies are chosen
// by name (docs/architecture.md, section 5).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

enum class BraidPolicy {
  static_merge,  // "static", the paper's: static_braid()
  sequential,    // one action after the other: sequential_braids()
  timed,         // by the times of segments: timed_braid()
  paired,        // DHelix's: paired_braid()
};

constexpr bool needs_times(BraidPolicy braid) {
  return braid == BraidPolicy::timed || braid == BraidPolicy::paired;
}

/// Seconds of a segment's ops, alone.
struct SegmentSeconds {
  double gather = 0;   // the all-gather before it
  double compute = 0;  // until its collective
  double reduce = 0;   // its all-reduce or reduce-scatter
  double behind = 0;   // weight gradients beside that
};

/// A place in the order of two chains: which of them gives its next segment, and whether that segment waits
/// for all ops before it.
struct BraidStep {
  uint8_t chain = 0;
  bool barrier = false;
  bool operator==(const BraidStep&) const = default;
};

/// The paper's static braid of chains of `na` and `nb` segments: take from the first if it is not exhausted
/// and (i·nb ≤ j·na or the second is exhausted), else from the second, where i and j count the segments
/// taken.
std::vector<BraidStep> static_braid(int na, int nb);

/// The order that ends the compute of both chains first, and of these the collectives: so it knows which
/// collective follows which segment. By dynamic programming over the segments taken, with the best few states
/// of each place kept: exact for short chains, never later than
/// static_braid(), and the same for chains of more than 2²⁰ places.
std::vector<BraidStep> timed_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// DHelix's (arXiv 2411.15871): each segment alone or with one of the other chain, all beginning and ending
/// together; the pairing with the smallest sum of times, by dynamic programming.
std::vector<BraidStep> paired_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// When the ops of two chains end that are issued in this order, the compute and then the collectives.
struct BraidEnd {
  double compute, collectives;
};
BraidEnd end_of(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b,
                std::span<const BraidStep> order);

/// The same order without braids: each braided block becomes two, the first action first. A valid schedule
/// stays valid.
Schedule sequential_braids(Schedule schedule);

/// Domino (DeepSpeed; arXiv 2409.15241): microbatch i becomes its halves 2i and 2i + 1, and each action the
/// braid of both; a braided block becomes two, the first action's first. A valid schedule stays valid.
/// Throws InputError if the halves are more than check_size() allows.
Schedule split_microbatches(Schedule schedule);

}  // namespace stp
