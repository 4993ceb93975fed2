// The location of a group's members, and the cost of its collectives there.
#pragma once

#include <vector>

#include "stp/cluster/profile.h"

namespace stp {

/// Consecutive world ranks, `end` not included.
struct RankRange {
  int begin = 0, end = 0;
};

/// A group on the nodes of a cluster. Ranks fill one node after the other.
struct GroupSpan {
  int ranks = 1, nodes = 1;
  double adapters = 0;  // of one node's members alone, on the node with the fewest
  bool operator==(const GroupSpan&) const = default;
};

/// The adapter of its node that a world rank's GPU uses: GPU i uses adapter ⌊i · adapters / GPUs⌋ and may
/// share it with its neighbours. If a node has more adapters than GPUs, each GPU has its own number, and
/// adapters_per_gpu() adapters; otherwise adapters_per_gpu() is one.
int adapter_of(const HardwareProfile& profile, int rank);
double adapters_per_gpu(const HardwareProfile& profile);

/// The span of the group `members` (world ranks, increasing), while all ranks of `together` communicate.
/// Ranks with the same adapter share it evenly.
GroupSpan span_of(const HardwareProfile& profile, const std::vector<int>& members, RankRange together = {});

/// Seconds of one all-reduce of `bytes`. On one node: all_reduce_seconds() by ranks. On several nodes: NCCL's
/// ring algorithm. Its rings pass all members of a node before they leave it, each through another of the
/// node's adapters. For n ranks on N nodes, 2(N − 1) of the 2(n − 1) steps are between nodes:
///   latency + 2(n − N) hops + 2(N − 1) latencies between nodes
///     + bytes · 2(n − 1)/n / min(bus bandwidth within a node, adapters · bandwidth between nodes).
/// The bus bandwidth counts only if a node has several members. Source: NCCL's tuning model
/// (src/graph/tuning.cc). Measured curves of groups within a node are not used.
double all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span);

/// The same for a reduce-scatter or an all-gather: half an all-reduce's steps and volume, with its own
/// latency.
double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span);

/// Seconds of a transfer of `bytes` between nodes, while `sends` such transfers share a GPU's adapter.
double transfer_between_nodes_seconds(const HardwareProfile& profile, double bytes, int sends);

}  // namespace stp
