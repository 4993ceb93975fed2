// NCCL's settings for its use of the device, by group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stp::cuda {

/// NCCL's CTA policy. `efficiency`: fewer CTAs for the same speed, where the buffers allow that; `zero`: copy
/// engines, where a collective has such a form (an all-reduce has none).
enum class CtaPolicy : uint8_t { standard, efficiency, zero };

struct NcclTuning {
  int min_ctas = 0, max_ctas = 0;  // per collective, each of which takes a multiprocessor; 0: NCCL's choice
  int cga_cluster_size = -1;       // CTAs of a cluster, 0 to 8; −1: NCCL's choice
  CtaPolicy policy = CtaPolicy::standard;
  /// All-reduces of up to so many bytes go through a symmetric window of this size, where NCCL has kernels
  /// that take few CTAs (with NVLS, by the switch's own sums): for one copy in and one out. 0: none.
  size_t window_bytes = 0;

  /// For errors, and to be the same on all members of a group.
  [[nodiscard]] std::string text() const;
};

/// Of groups by the first word of their names ("tp inside ops" is one of tp's), and of all others.
struct NcclOptions {
  NcclTuning standard;
  std::map<std::string, NcclTuning> groups;

  [[nodiscard]] const NcclTuning& of(const std::string& group) const;
};

/// Of texts "GROUP:KEY=VALUE[,KEY=VALUE…]": groups tp, dp, model, p2p, or all for those that no other text
/// names; keys min_ctas, max_ctas, cluster, policy (standard, efficiency, zero) and window_mib. A later text
/// goes over earlier ones. Throws InputError that names `flag` and the word.
NcclOptions read_nccl_options(const std::string& flag, const std::vector<std::string>& texts);

}  // namespace stp::cuda
