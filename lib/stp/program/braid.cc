#include "stp/program/braid.h"

#include <utility>

namespace stp {

std::vector<uint8_t> static_braid(int na, int nb) {
  std::vector<uint8_t> order;
  order.reserve(na + nb);
  int i = 0, j = 0;
  while (i < na || j < nb) {
    const bool first = i < na && (j == nb || int64_t{i} * nb <= int64_t{j} * na);
    order.push_back(first ? 0 : 1);
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

}  // namespace stp
