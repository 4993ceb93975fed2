// Orders that a search finds, for tests of what runs any order.
#pragma once

#include <algorithm>
#include <random>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/local_search.h"
#include "stp/simulate/simulate.h"
#include "support/schedules.h"

namespace stp {

/// An order of random p ≤ 4, m, costs and limit, searched from a random one.
inline Schedule searched_schedule(std::mt19937& random) {
  const int p = 1 << random() % 3, m = 1 + static_cast<int>(random() % (3 * p));
  const Schedule start = random_schedule(
      random, random() % 3 ? Placement::v(p) : Placement::loop(p, 1 + static_cast<int>(random() % 2)), m);
  std::uniform_real_distribution<double> cost(0.1, 1);
  CostTable table;
  for (const Unit unit : kLayerUnits)
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late})
      table.at(unit, pass) = cost(random);
  table.all_reduce = cost(random) / 2;
  table.transfer_within_node = table.transfer_between_nodes = table.transfer_beside_another =
      cost(random) / 4;
  const std::vector<int> layers(start.placement.stages(), 1);
  SearchRequest request{.seed = random(), .moves = 1000};
  request.activation_limit = std::ranges::max(peak_activations(start)) + static_cast<int>(random() % 3);
  request.step_seconds = [&](const Schedule& schedule) {
    const Program program = lower(schedule, layers, {.release = Release::released});
    return simulate(program, op_seconds(program, table), {0.8, 0.9}).step_s;
  };
  SearchResult found = local_search(start, request.step_seconds(start), request);
  validate(found.schedule);
  return found.schedule;
}

}  // namespace stp
