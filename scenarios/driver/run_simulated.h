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

/// The same, lowered.
Program program_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

/// What a result says of the configuration that it is of; the model is left out.
Configuration configuration_of(const Experiment& experiment, const Program& program);

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file);

}  // namespace stp
