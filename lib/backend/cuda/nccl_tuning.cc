#include "stp/cuda/nccl_tuning.h"

namespace stp {

std::string NcclTuning::text() const {
  const auto number = [](int value, int none) { return value == none ? "any" : std::to_string(value); };
  const char* const policies[] = {"standard", "efficiency", "zero"};
  return "CTAs " + number(min_ctas, 0) + " to " + number(max_ctas, 0) + ", cluster " +
         number(cga_cluster_size, -1) + ", policy " + policies[static_cast<int>(policy)] + ", window of " +
         std::to_string(window_bytes) + " bytes";
}

const NcclTuning& NcclOptions::of(const std::string& group) const {
  const auto found = groups.find(group);
  return found == groups.end() ? standard : found->second;
}

}  // namespace stp
