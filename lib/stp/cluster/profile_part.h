// The properties of a machine in groups that can be copied from one profile into another, to see which of
// them causes a difference.
#pragma once

#include <array>
#include <string>

#include "stp/cluster/profile.h"

namespace stp {

enum class ProfilePart {
  compute,     // GEMM and attention: peak, SMs, efficiencies, overhead of a tile, measured GEMMs
  memory,      // elementwise work: bandwidth as kernels reach it, traffic of unfused code
  all_reduce,  // latencies, bus bandwidth, measured curves
  contention,  // what overlapping compute and all-reduces keep of their speed, and ranks that share
               // processors
  p2p,         // transfers between stages and to the host: links, and how many GPUs and adapters a node has
  launches     // overhead of a kernel
};
inline constexpr std::array kProfileParts = {ProfilePart::compute,    ProfilePart::memory,
                                             ProfilePart::all_reduce, ProfilePart::contention,
                                             ProfilePart::p2p,        ProfilePart::launches};

/// "compute", …, for records.
std::string to_string(ProfilePart part);

/// Copies the properties that belong to `part` from `from` to `to`. With all parts copied, every time of `to`
/// is that of `from`; memory capacity and names belong to no part.
void take_part(HardwareProfile& to, const HardwareProfile& from, ProfilePart part);

/// Whether two machines are equal in `part`.
bool same_part(const HardwareProfile& a, const HardwareProfile& b, ProfilePart part);

}  // namespace stp
