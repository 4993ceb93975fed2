// When the actions of an order run, by the two rules of tests/golden/README.md.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stp/program/braid.h"
#include "stp/schedule/timing.h"
#include "stp/schedule/validate.h"

namespace stp {

/// How far sums of costs may be off; and costs of passes.
inline constexpr double kEpsilon = 1e-9;
inline constexpr PassCosts kEqual{1, 1, 1, 0}, kUnequal{1, 1, 0.7, 0.05};

/// A braid starts when all its inputs are ready and releases all outputs at its end, or its actions run one
/// after the other.
enum class Braids { atomic, in_turn };

struct OrderTimes {
  std::vector<double> first, last;  // by rank: when its first action starts and its last one ends

  [[nodiscard]] double makespan() const { return *std::ranges::max_element(last); }
  [[nodiscard]] double longest_span() const {
    double longest = 0;
    for (size_t rank = 0; rank < first.size(); ++rank) longest = std::max(longest, last[rank] - first[rank]);
    return longest;
  }
};

inline std::string title(const Schedule& schedule) {
  return schedule.name + " p=" + std::to_string(schedule.pp()) +
         " m=" + std::to_string(schedule.microbatches);
}

/// Of a valid order.
inline OrderTimes run_order(Schedule schedule, const PassCosts& costs, Braids braids = Braids::atomic) {
  if (braids == Braids::in_turn) schedule = sequential_braids(std::move(schedule));
  OrderTimes run;
  for (const auto& blocks : time_blocks(schedule, costs)) {
    run.first.push_back(blocks.front().start);
    run.last.push_back(blocks.back().end);
  }
  return run;
}

/// How much longer an order takes than a rank's own work.
inline double bubble(const Schedule& schedule, const PassCosts& costs, Braids braids = Braids::atomic) {
  return run_order(schedule, costs, braids).makespan() -
         schedule.chunks() * schedule.microbatches * (costs.F + costs.I + costs.W);
}

}  // namespace stp
