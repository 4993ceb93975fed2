#include "stp/cluster/profile_part.h"

#include <tuple>

namespace stp {
namespace {

using Profile = HardwareProfile;

// The values of each part, in the order of ProfilePart.
constexpr std::tuple kValues{
    std::tuple{&Profile::peak_flops, &Profile::sms, &Profile::gemm_efficiency, &Profile::gemm_overhead_k,
               &Profile::gemm_sustained, &Profile::gemm_measured, &Profile::attention_cudnn,
               &Profile::gpu_spread, &Profile::attention_forward_efficiency,
               &Profile::attention_backward_efficiency, &Profile::attention_tile_overhead},
    std::tuple{&Profile::memory_bytes_per_s, &Profile::elementwise_factor, &Profile::elementwise_undivided},
    std::tuple{&Profile::all_reduce_latency_s, &Profile::all_reduce_hop_latency_s,
               &Profile::all_reduce_bus_bytes_per_s, &Profile::all_reduce_measured},
    std::tuple{&Profile::contention_compute, &Profile::contention_all_reduce, &Profile::receive_sms,
               &Profile::reduction_sms, &Profile::shared},
    std::tuple{&Profile::within_node, &Profile::between_nodes, &Profile::gpus_per_node,
               &Profile::adapters_per_node, &Profile::host_to_device_bytes_per_s,
               &Profile::device_to_host_bytes_per_s},
    std::tuple{&Profile::kernel_overhead_s, &Profile::host_launch_s, &Profile::batched_transfer_s,
               &Profile::step_overhead_s}};

// Calls use(pointer to member) for each value of `part`.
template <typename Use>
void for_each_value(ProfilePart part, Use use) {
  size_t index = 0;
  const auto visit = [&](const auto& values) {
    if (index++ == static_cast<size_t>(part))
      std::apply([&](const auto... value) { (use(value), ...); }, values);
  };
  std::apply([&](const auto&... values) { (visit(values), ...); }, kValues);
}

}  // namespace

std::string to_string(ProfilePart part) {
  constexpr std::array kNames{"compute", "memory", "all_reduce", "contention", "p2p", "launches"};
  return kNames.at(static_cast<size_t>(part));
}

void take_part(HardwareProfile& to, const HardwareProfile& from, ProfilePart part) {
  for_each_value(part, [&](auto value) { to.*value = from.*value; });
}

bool same_part(const HardwareProfile& a, const HardwareProfile& b, ProfilePart part) {
  bool same = true;
  for_each_value(part, [&](auto value) { same = same && a.*value == b.*value; });
  return same;
}

}  // namespace stp
