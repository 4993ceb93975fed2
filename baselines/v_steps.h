// The vocabulary of generators that split every backward on a V placement: ZB-V, V-Half, V-Min.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stp/schedule/rank_writer.h"
#include "stp/schedule/schedule.h"

namespace stp {

/// The four legs of a microbatch's way, in their order: down the ranks and up again, forward, then backward.
/// kW, the oldest weight gradient put off, is a step of a rank's order but no leg: nothing travels.
enum Step : uint8_t { kF0, kF1, kI1, kI0, kW };

constexpr bool is_forward(Step leg) { return leg <= kF1; }
constexpr bool goes_down(Step leg) { return leg == kF0 || leg == kI1; }
constexpr int chunk_of(Step leg) { return leg == kF1 || leg == kI1 ? 1 : 0; }

/// By rank; microbatches follow from counting.
using Orders = std::vector<std::vector<Step>>;

inline Schedule schedule_of(const std::string& name, const Orders& orders, int microbatches) {
  Schedule schedule{name, Placement::v(static_cast<int>(orders.size())), microbatches, {}};
  for (const auto& order : orders) {
    RankWriter rank;
    for (const Step step : order) {
      if (step == kW) {
        rank.run(rank.weight_gradient());
      } else {
        rank.run(is_forward(step) ? rank.forward(chunk_of(step)) : rank.input_gradient(chunk_of(step)));
      }
    }
    schedule.ranks.push_back(rank.take());
  }
  return schedule;
}

}  // namespace stp
