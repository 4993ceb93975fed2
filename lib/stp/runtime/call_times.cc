#include "stp/runtime/call_times.h"

#include <algorithm>

#include "stp/cluster/group_span.h"

namespace stp {

CallTimes call_times(const HardwareProfile& profile) {
  return [profile](CallKind kind, double bytes, std::vector<int> members) -> CallTime {
    std::sort(members.begin(), members.end());  // a link's are in the order of its ends
    const GroupSpan span = span_of(profile, members);
    const auto seconds = [&](double of) {
      if (kind == CallKind::all_reduce) return all_reduce_seconds(profile, of, span);
      if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter)
        return half_all_reduce_seconds(profile, of, span);
      // A member's own block of an all-to-all stays.
      const double sent = kind == CallKind::all_to_all ? of * (span.ranks - 1) / span.ranks : of;
      return transfer_seconds(span.nodes == 1 ? profile.within_node : profile.between_nodes, sent);
    };
    const double latency = seconds(0);
    return {latency, std::max(0.0, seconds(bytes) - latency)};
  };
}

}  // namespace stp
