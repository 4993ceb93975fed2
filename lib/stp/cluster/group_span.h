// Where the members of a group are, and what a collective costs there.
#pragma once

#include <vector>

#include "stp/cluster/profile.h"

namespace stp {

/// Consecutive world ranks, `end` not included.
struct RankRange {
  int begin = 0, end = 0;
};

/// A group on the nodes of a cluster, which ranks fill one after the other.
struct GroupSpan {
  int ranks = 1, nodes = 1;
  double adapters = 0;  // that the members on a node have for themselves, on the node where they have fewest
  bool operator==(const GroupSpan&) const = default;
};

/// The adapter of its node that a world rank's GPU uses: GPU i the adapter ⌊i · adapters / GPUs⌋, which it
/// shares with the GPUs beside it. Where a node has more adapters than GPUs, each GPU has a number of its
/// own, and adapters_per_gpu() of them; else that is one.
int adapter_of(const HardwareProfile& profile, int rank);
double adapters_per_gpu(const HardwareProfile& profile);

/// Of the group `members` (world ranks, increasing), while all ranks of `together` communicate: those of one
/// adapter share it evenly.
GroupSpan span_of(const HardwareProfile& profile, const std::vector<int>& members, RankRange together = {});

/// Seconds of one all-reduce of `bytes`. On one node as all_reduce_seconds() by ranks. On several as NCCL's
/// ring algorithm: rings that pass all members of a node before they leave it, each through another of its
/// adapters. For n ranks on N nodes, of 2(n − 1) steps 2(N − 1) are between nodes:
///   latency + 2(n − N) hops + 2(N − 1) latencies between nodes
///     + bytes · 2(n − 1)/n / min(bus bandwidth within a node, adapters · bandwidth between nodes),
/// the bus bandwidth only where a node has several members. Source: NCCL's own tuning model
/// (src/graph/tuning.cc). Measured curves of groups within a node are not read.
double all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span);

/// The same of a reduce-scatter or an all-gather: half an all-reduce's steps and volume, but a latency of its
/// own.
double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span);

/// Seconds of a transfer between nodes, one of `sends` of as many bytes through a GPU's adapter.
double transfer_between_nodes_seconds(const HardwareProfile& profile, double bytes, int sends);

}  // namespace stp
