// What one process of a run has measured, and how the shares of all become the run's.
#pragma once

#include <string>
#include <vector>

#include "stp/processes/processes.h"
#include "stp/program/program.h"
#include "stp/runtime/trainer.h"

namespace stp {

struct ProcessShare {
  std::vector<double> losses, step_times_s;  // by step: of all, and of the timed ones
  // Of the last step, by op, as StepResult has them: in a run of several processes each counts from the
  // moment when all ranks had come to the step.
  std::vector<OpTime> times;
  std::vector<bool> known;
  double step_s = 0;
  std::vector<RankUse> uses;
};

/// The whole run's, at process 0; at the others nothing of use. All processes call it. Losses are summed,
/// a step takes as long as the slowest process's, an op has the time of the first rank of its pipeline rank.
ProcessShare share_of_all(Processes& processes, const Program& program, const RankGrid& grid,
                          ProcessShare own);

/// The sum over all processes, in their order, at process 0. All call it.
double sum_of_all(Processes& processes, double own);

}  // namespace stp
