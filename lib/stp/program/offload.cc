#include "stp/program/offload.h"

#include <map>

namespace stp {

std::vector<OffloadedActivation> offloaded_activations(std::span<const Block> blocks) {
  std::vector<OffloadedActivation> found;
  std::map<int, int> forwards;  // by microbatch: the block
  for (int block = 0; block < static_cast<int>(blocks.size()); ++block)
    for (const Action& action : blocks[block].actions()) {
      if (action.chunk != 0) continue;
      if (action.pass == Pass::F) forwards[action.microbatch] = block;
      if (action.pass != Pass::I && action.pass != Pass::B) continue;
      const OffloadedActivation each{action, forwards.at(action.microbatch), block};
      if (each.freed_at() < each.reloaded_at()) found.push_back(each);
    }
  return found;
}

}  // namespace stp
