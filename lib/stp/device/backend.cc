#include "stp/device/backend.h"

#include <algorithm>

namespace stp {

std::vector<int> local_members(const std::vector<int>& members, const std::vector<int>& ranks) {
  std::vector<int> local;
  for (size_t i = 0; i < members.size(); ++i)
    if (std::find(ranks.begin(), ranks.end(), members[i]) != ranks.end())
      local.push_back(static_cast<int>(i));
  return local;
}

}  // namespace stp
