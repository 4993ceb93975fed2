// Braids by the times of their segments. docs/experiments/braids.md shows their gain over the static braid.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"

namespace stp {

/// Seconds of a segment's ops, each alone.
struct SegmentSeconds {
  double gather = 0;   // the all-gather before it
  double compute = 0;  // until its collective
  double reduce = 0;   // its all-reduce or reduce-scatter
  double behind = 0;   // weight gradients beside the collective
};

/// Seconds of a segment of a Program with this lowering. Collectives in pieces count as the last piece.
std::function<SegmentSeconds(const Segment&)> segment_seconds(const CostTable& table,
                                                              const Lowering& lowering);

/// The times when the compute ops, and all ops, of two chains end, if issued in this order on free streams.
/// With barriers, all-gathers begin after them, as under BraidPolicy::paired.
struct BraidEnd {
  double compute, all;
};
BraidEnd end_of(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b,
                std::span<const BraidStep> order);

/// The order that ends all ops first, and of those the compute. It tracks which collective follows which
/// segment. Dynamic programming with the best few states per place: exact for short chains, never later than
/// static_braid(). Chains of more than 2¹⁷ places get static_braid().
std::vector<BraidStep> timed_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// DHelix's braid (arXiv 2411.15871): each segment runs alone or paired with one of the other chain; a pair
/// begins and ends together. Dynamic programming finds the pairing with the smallest sum of times.
std::vector<BraidStep> paired_braid(std::span<const SegmentSeconds> a, std::span<const SegmentSeconds> b);

/// Returns timed_braid() or paired_braid() for the Program's chains.
BraidOrder braid_order(BraidPolicy policy, const CostTable& table, const Lowering& lowering);

}  // namespace stp
