#include "stp/runtime/call_times.h"

#include <algorithm>

namespace stp {

CallTimes call_times(const HardwareProfile& profile) {
  return [profile](CallKind kind, double bytes, const std::vector<int>& members) -> CallTime {
    const int ranks = static_cast<int>(members.size());
    const auto on_first_node = [&](int rank) {
      return rank / profile.gpus_per_node == members[0] / profile.gpus_per_node;
    };
    const bool one_node = std::all_of(members.begin(), members.end(), on_first_node);
    const LinkProfile& link = one_node ? profile.within_node : profile.between_nodes;
    if (kind == CallKind::transfer) return {link.latency_s, transfer_seconds(link, bytes) - link.latency_s};
    if (one_node) {
      const auto seconds = kind == CallKind::all_reduce ? all_reduce_seconds : half_all_reduce_seconds;
      const double latency = seconds(profile, 0, ranks);
      return {latency, std::max(0.0, seconds(profile, bytes, ranks) - latency)};
    }
    const int steps = (kind == CallKind::all_reduce ? 2 : 1) * (ranks - 1);
    return {steps * link.latency_s, bytes * link_share(kind, ranks) / link.bytes_per_s};
  };
}

}  // namespace stp
