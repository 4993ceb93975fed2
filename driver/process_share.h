// The measurements of one process of a run, and their merging.
#pragma once

#include <vector>

#include "stp/processes/processes.h"
#include "stp/program/program.h"
#include "stp/runtime/trainer.h"

namespace stp {

struct ProcessShare {
  std::vector<double> losses, step_times_s;  // by step: of all, and of the timed ones
  // Of the last step, by op, as StepResult has them: with several processes times count from when all ranks
  // had reached the step.
  std::vector<OpTime> times;
  std::vector<bool> known;
  double step_s = 0;
  std::vector<RankUse> uses;
};

/// The run's measurements, at process 0; meaningless at the others. All processes must call it. Losses are
/// summed, a step's time is that of the slowest process, an op's time is that of the first rank of its
/// pipeline rank.
ProcessShare share_of_all(Processes& processes, const Program& program, const RankGrid& grid,
                          ProcessShare own);

/// The sum over all processes, in their order, at process 0. All must call it.
double sum_of_all(Processes& processes, double own);

}  // namespace stp
