#include "stp/program/braid.h"

#include <utility>

namespace stp {

std::vector<BraidStep> static_braid(int na, int nb) {
  std::vector<BraidStep> order;
  order.reserve(na + nb);
  int i = 0, j = 0;
  while (i < na || j < nb) {
    const bool first = i < na && (j == nb || int64_t{i} * nb <= int64_t{j} * na);
    order.push_back({static_cast<uint8_t>(first ? 0 : 1)});
    ++(first ? i : j);
  }
  return order;
}

Schedule sequential_braids(Schedule schedule) {
  for (auto& blocks : schedule.ranks) {
    std::vector<Block> single;
    single.reserve(2 * blocks.size());
    for (const Block& block : blocks)
      for (const Action& action : block.actions()) single.emplace_back(action);
    blocks = std::move(single);
  }
  return schedule;
}

Schedule split_microbatches(Schedule schedule) {
  check_size(schedule.pp(), schedule.chunks(), 2 * schedule.microbatches);
  schedule.microbatches *= 2;
  for (auto& blocks : schedule.ranks) {
    std::vector<Block> halves;
    halves.reserve(2 * blocks.size());
    for (const Block& block : blocks)
      for (const Action& action : block.actions()) {
        Action half = action, other = action;
        half.microbatch = 2 * action.microbatch;
        other.microbatch = half.microbatch + 1;
        halves.emplace_back(half, other);
      }
    blocks = std::move(halves);
  }
  return schedule;
}

}  // namespace stp
