#include "stp/cluster/profile_part.h"

#include <tuple>

namespace stp {
namespace {

// Each part as its values, by reference: to be assigned or compared as a whole. `Profile` is const or not.
template <typename Profile>
auto compute_of(Profile& p) {
  return std::tie(p.peak_flops, p.sms, p.gemm_efficiency, p.gemm_overhead_k, p.gemm_measured,
                  p.attention_forward_efficiency, p.attention_backward_efficiency, p.attention_tile_overhead);
}
template <typename Profile>
auto memory_of(Profile& p) {
  return std::tie(p.memory_bytes_per_s, p.elementwise_factor, p.elementwise_undivided);
}
template <typename Profile>
auto all_reduce_of(Profile& p) {
  return std::tie(p.all_reduce_latency_s, p.all_reduce_hop_latency_s, p.all_reduce_bus_bytes_per_s,
                  p.all_reduce_measured);
}
template <typename Profile>
auto contention_of(Profile& p) {
  return std::tie(p.contention_compute, p.contention_all_reduce, p.receive_sms, p.shared);
}
template <typename Profile>
auto p2p_of(Profile& p) {
  return std::tie(p.within_node, p.between_nodes, p.gpus_per_node, p.adapters_per_node,
                  p.host_to_device_bytes_per_s, p.device_to_host_bytes_per_s);
}
template <typename Profile>
auto launches_of(Profile& p) {
  return std::tie(p.kernel_overhead_s, p.host_launch_s);
}

// Calls `use` with the values of `part` of both.
template <typename First, typename Use>
bool with_part(First& first, const HardwareProfile& second, ProfilePart part, Use use) {
  switch (part) {
    case ProfilePart::compute:
      return use(compute_of(first), compute_of(second));
    case ProfilePart::memory:
      return use(memory_of(first), memory_of(second));
    case ProfilePart::all_reduce:
      return use(all_reduce_of(first), all_reduce_of(second));
    case ProfilePart::contention:
      return use(contention_of(first), contention_of(second));
    case ProfilePart::p2p:
      return use(p2p_of(first), p2p_of(second));
    case ProfilePart::launches:
      return use(launches_of(first), launches_of(second));
  }
  return false;
}

}  // namespace

std::string to_string(ProfilePart part) {
  switch (part) {
    case ProfilePart::compute:
      return "compute";
    case ProfilePart::memory:
      return "memory";
    case ProfilePart::all_reduce:
      return "all_reduce";
    case ProfilePart::contention:
      return "contention";
    case ProfilePart::p2p:
      return "p2p";
    case ProfilePart::launches:
      return "launches";
  }
  return "";
}

void take_part(HardwareProfile& to, const HardwareProfile& from, ProfilePart part) {
  with_part(to, from, part, [](auto&& target, auto&& source) {
    target = source;
    return true;
  });
}

bool same_part(const HardwareProfile& a, const HardwareProfile& b, ProfilePart part) {
  return with_part(a, b, part, [](auto&& one, auto&& other) { return one == other; });
}

}  // namespace stp
