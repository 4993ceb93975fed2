// One experiment in virtual time: schedule, program, costs, simulation, result.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"
#include "stp/report/record.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// All that one simulated schedule left behind.
struct SimulatedRun {
  Program program;
  Timeline timeline;
  Result result;
};

/// The schedule that `choice` names for `experiment`, validated. `file` is the scenario's, for errors.
Schedule schedule_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file);

}  // namespace stp
