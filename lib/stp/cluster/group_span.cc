#include "stp/cluster/group_span.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

namespace stp {
namespace {

bool holds(RankRange range, int rank) { return range.begin <= rank && rank < range.end; }

}  // namespace

int adapter_of(const HardwareProfile& profile, int rank) {
  const int gpus = profile.gpus_per_node;
  return static_cast<int>(int64_t{rank % gpus} * std::min(profile.adapters_per_node, gpus) / gpus);
}

double adapters_per_gpu(const HardwareProfile& profile) {
  return std::max(1.0, double{1} * profile.adapters_per_node / profile.gpus_per_node);
}

GroupSpan span_of(const HardwareProfile& profile, const std::vector<int>& members, RankRange together) {
  GroupSpan span{static_cast<int>(members.size()), 0, std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < members.size();) {
    const int first = members[i] / profile.gpus_per_node * profile.gpus_per_node;
    struct Sharing {
      int members = 0, others = 0;
    };
    std::map<int, Sharing> adapters;
    for (int rank = first; rank < first + profile.gpus_per_node; ++rank) {
      const bool member = i < members.size() && members[i] == rank;
      if (member) ++i;
      if (!member && !holds(together, rank)) continue;
      Sharing& sharing = adapters[adapter_of(profile, rank)];
      ++(member ? sharing.members : sharing.others);
    }
    double here = 0;
    for (const auto& [adapter, sharing] : adapters)
      here += adapters_per_gpu(profile) * sharing.members / (sharing.members + sharing.others);
    span.adapters = std::min(span.adapters, here);
    ++span.nodes;
  }
  return span;
}

double all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span) {
  if (span.nodes == 1) return all_reduce_seconds(profile, bytes, span.ranks);
  double bandwidth = span.adapters * profile.between_nodes.bytes_per_s;
  if (span.ranks > span.nodes) bandwidth = std::min(bandwidth, profile.all_reduce_bus_bytes_per_s);
  return profile.all_reduce_latency_s + 2 * (span.ranks - span.nodes) * profile.all_reduce_hop_latency_s +
         2 * (span.nodes - 1) * profile.between_nodes.latency_s + bytes * ring_share(span.ranks) / bandwidth;
}

double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, const GroupSpan& span) {
  if (span.nodes == 1) return half_all_reduce_seconds(profile, bytes, span.ranks);
  return (all_reduce_seconds(profile, bytes, span) + profile.all_reduce_latency_s) / 2;
}

double transfer_between_nodes_seconds(const HardwareProfile& profile, double bytes, int sends) {
  const LinkProfile& adapter = profile.between_nodes;
  return transfer_seconds({adapter.latency_s, adapter.bytes_per_s * adapters_per_gpu(profile) / sends},
                          bytes);
}

}  // namespace stp
