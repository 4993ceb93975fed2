// The measurements of one process of a run, and their merging.
#pragma once

#include <vector>

#include "stp/processes/processes.h"
#include "stp/program/program.h"
#include "stp/runtime/trainer.h"

namespace stp {

struct ProcessShare {
  std::vector<double> losses, step_times_s;  // by step: all steps; timed steps
  // The last step, by op, as in StepResult. With several processes, times count from when all ranks had
  // reached the step.
  std::vector<OpTime> times;
  std::vector<bool> known;
  double step_s = 0;
  std::vector<RankUse> uses;
};

/// Returns the run's measurements at process 0; they are meaningless elsewhere. All processes must call it.
/// Losses are summed. A step's time is the slowest process's, and an op's time is that of the first rank of
/// its pipeline rank.
ProcessShare share_of_all(Processes& processes, const Program& program, const RankGrid& grid,
                          ProcessShare own);

/// Returns the sum over all processes, in their order, at process 0. All processes must call it.
double sum_of_all(Processes& processes, double own);

}  // namespace stp
