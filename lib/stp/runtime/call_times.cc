#include "stp/runtime/call_times.h"

#include <algorithm>

#include "stp/cluster/group_span.h"

namespace stp {

CallTimes call_times(const HardwareProfile& profile) {
  return [profile](CallKind kind, double bytes, const std::vector<int>& members) -> CallTime {
    const GroupSpan span = span_of(profile, members);
    const auto seconds = [&](double of) {
      if (kind == CallKind::all_reduce) return all_reduce_seconds(profile, of, span);
      if (kind != CallKind::transfer) return half_all_reduce_seconds(profile, of, span);
      return transfer_seconds(span.nodes == 1 ? profile.within_node : profile.between_nodes, of);
    };
    const double latency = seconds(0);
    return {latency, std::max(0.0, seconds(bytes) - latency)};
  };
}

}  // namespace stp
