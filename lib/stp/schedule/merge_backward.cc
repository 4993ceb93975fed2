#include "stp/schedule/merge_backward.h"

#include <utility>

namespace stp {
namespace {

bool is_alone(const Block& block, Pass pass) { return !block.braided() && block.actions()[0].pass == pass; }

bool same_work(const Block& I, const Block& W) {
  const Action &a = I.actions()[0], &b = W.actions()[0];
  return a.chunk == b.chunk && a.microbatch == b.microbatch;
}

}  // namespace

Schedule merge_backward(Schedule schedule) {
  for (std::vector<Block>& blocks : schedule.ranks) {
    std::vector<Block> merged;
    merged.reserve(blocks.size());
    for (const Block& block : blocks) {
      const bool follows = !merged.empty() && is_alone(block, Pass::W) && is_alone(merged.back(), Pass::I) &&
                           same_work(merged.back(), block);
      if (!follows) {
        merged.push_back(block);
        continue;
      }
      Action full = block.actions()[0];
      full.pass = Pass::B;
      merged.back() = Block(full);
    }
    blocks = std::move(merged);
  }
  return schedule;
}

}  // namespace stp
