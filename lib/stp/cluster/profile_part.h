// Groups of a machine's properties. Copying one from profile to profile shows which group causes a
// difference.
#pragma once

#include <array>
#include <string>

#include "stp/cluster/profile.h"

namespace stp {

enum class ProfilePart {
  compute,     // GEMM and attention: peak, SMs, efficiencies, overhead of a tile, measured rates, spread
  memory,      // elementwise work: bandwidth of kernels, traffic of unfused code
  all_reduce,  // latencies, bus bandwidth, measured curves
  contention,  // speed of overlapping compute and all-reduces; ranks that share processors
  p2p,         // transfers between stages and to the host: links, GPUs and adapters per node
  launches     // overhead per kernel and step
};
inline constexpr std::array kProfileParts = {ProfilePart::compute,    ProfilePart::memory,
                                             ProfilePart::all_reduce, ProfilePart::contention,
                                             ProfilePart::p2p,        ProfilePart::launches};

/// The name in records: "compute", ….
std::string to_string(ProfilePart part);

/// Copies the properties of `part` from `from` to `to`. After copying all parts, both give the same times;
/// memory capacity and names belong to no part.
void take_part(HardwareProfile& to, const HardwareProfile& from, ProfilePart part);

/// Whether two machines have equal properties in `part`.
bool same_part(const HardwareProfile& a, const HardwareProfile& b, ProfilePart part);

}  // namespace stp
