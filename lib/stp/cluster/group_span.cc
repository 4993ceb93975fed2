#include "stp/cluster/group_span.h"

#include <algorithm>
#include <limits>

namespace stp {
namespace {

// Adapters that `members` ranks of a node have, of `busy` that communicate there.
double adapters_of(const HardwareProfile& profile, int members, int busy) {
  const double adapters = profile.adapters_per_node;
  const double driven = std::max(1.0, adapters / profile.gpus_per_node);
  return members * std::min(driven, adapters / std::max(members, busy));
}

}  // namespace

GroupSpan span_of(const HardwareProfile& profile, const std::vector<int>& members, RankRange together) {
  GroupSpan span{static_cast<int>(members.size()), 0, std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < members.size();) {
    const int node = members[i] / profile.gpus_per_node;
    const int first = node * profile.gpus_per_node, end = first + profile.gpus_per_node;
    int here = 0;
    for (; i < members.size() && members[i] < end; ++i) ++here;
    const int busy = std::min(together.end, end) - std::max(together.begin, first);
    span.adapters = std::min(span.adapters, adapters_of(profile, here, busy));
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

double transfer_between_nodes_seconds(const HardwareProfile& profile, double bytes, int ranks) {
  const LinkProfile& adapter = profile.between_nodes;
  return transfer_seconds({adapter.latency_s, adapter.bytes_per_s * adapters_of(profile, 1, ranks)}, bytes);
}

}  // namespace stp
