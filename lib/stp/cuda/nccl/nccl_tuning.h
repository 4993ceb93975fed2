// NCCL's settings for its use of the device, by group.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace stp::cuda {

/// The same on all members of a group.
struct NcclTuning {
  int min_ctas = 0, max_ctas = 0;  // per collective, a multiprocessor each; 0: NCCL's choice
  int cga_cluster_size = -1;       // CTAs of a cluster, 0 to 8; −1: NCCL's choice
};

/// Settings by the first word of a group's name ("tp inside ops" uses tp's), and for all other groups.
struct NcclOptions {
  NcclTuning standard;
  std::map<std::string, NcclTuning> groups;
  bool probes = false;  // each new group makes a first call, whose result is known

  [[nodiscard]] const NcclTuning& of(const std::string& group) const;
};

/// Reads texts "GROUP:KEY=VALUE[,KEY=VALUE…]". Groups: tp, cp, dp, model, vocabulary, embedding,
/// pipelines, p2p, world, or all for groups that no other text names. Keys: min_ctas, max_ctas, cluster. A
/// later text replaces earlier ones. Throws InputError that names `flag` and the word.
NcclOptions read_nccl_options(const std::string& flag, const std::vector<std::string>& texts);

}  // namespace stp::cuda
