// Makes an STP schedule, lowers it, simulates it, and prints the time of a step.
#include <cstdio>
#include <vector>

#include "baselines/registry.h"
#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "stp/version.h"

int main() {
  const stp::Schedule schedule =
      stp::make_schedule(stp::find_generator("stp"), {.pp = 4, .microbatches = 12});
  stp::validate(schedule);
  const std::vector<int> layers(static_cast<size_t>(schedule.placement.stages()), 1);
  const stp::Program program = stp::lower(schedule, layers, {});

  // A layer of F = I = W = 1, an all-reduce of an eighth behind each half of F and I.
  stp::CostTable table;
  for (const stp::Unit unit : {stp::Unit::attn, stp::Unit::mlp})
    for (const stp::UnitPass pass : {stp::UnitPass::F, stp::UnitPass::I, stp::UnitPass::W_late})
      table.at(unit, pass) = 0.5;
  table.all_reduce = 0.125;
  const stp::Timeline timeline = stp::simulate(program, stp::op_seconds(program, table));
  std::printf("stp %s: step time %.6f s\n", STP_VERSION, timeline.step_s);
  return 0;
}
