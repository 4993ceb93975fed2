// Braids by the times of their segments. What they gain over the static one: docs/experiments/braids.md.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"

namespace stp {

/// Seconds of a segment's ops, alone.
struct SegmentSeconds {
  double gather = 0;   // the all-gather before it
  double compute = 0;  // until its collective
  double reduce = 0;   // its all-reduce or reduce-scatter
  double behind = 0;   // weight gradients beside that
};

/// The seconds of a segment of a Program of that lowering. Collectives in pieces count as the last piece.
std::function<SegmentSeconds(const Segment&)> segment_seconds(const CostTable& table,
                                                              const Lowering& lowering);

/// When the ops of two chains end that are issued in this order on free streams: compute, and all. Where
/// there are barriers, all-gathers begin behind them, as under BraidPolicy::paired.
struct BraidEnd {
  double compute, all;
};
BraidEnd end_of(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b,
                std::span<const BraidStep> order);

/// The order that ends all ops first, and of these the compute: so it knows which collective follows which
/// segment. By dynamic programming over the segments taken, with the best few states of each place kept:
/// exact for short chains, never later than static_braid(), and the same for chains of more than 2¹⁷ places.
std::vector<BraidStep> timed_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// DHelix's (arXiv 2411.15871): each segment alone or with one of the other chain, all beginning and ending
/// together; the pairing with the smallest sum of times, by dynamic programming.
std::vector<BraidStep> paired_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// One of these two for the Program's chains.
BraidOrder braid_order(BraidPolicy policy, const CostTable& table, const Lowering& lowering);

}  // namespace stp
