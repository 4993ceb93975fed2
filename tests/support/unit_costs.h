// Costs of one a pass of a chunk of one layer, for tests of what schedules take.
#pragma once

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// Each all-reduce takes so long.
inline CostTable unit_costs(double all_reduce) {
  CostTable table;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late}) table.at(unit, pass) = 0.5;
  table.all_reduce = all_reduce;
  return table;
}

inline double step_time(const Schedule& schedule, double all_reduce, Release release = Release::chain) {
  const std::vector<int> layers(schedule.placement.stages(), 1);
  const Program program = lower(schedule, layers, {.release = release});
  return simulate(program, op_seconds(program, unit_costs(all_reduce))).step_s;
}

}  // namespace stp
