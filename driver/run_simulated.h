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

/// What a profile says of one step of an experiment on devices.
struct StepPrediction {
  double step_s;
  bool oversubscribed;  // more ranks than processors that they share
};
/// For an experiment with a `run`, in float32, by the suite's own kernels.
StepPrediction predict_step(const ScheduleChoice& choice, const Experiment& experiment,
                            const HardwareProfile& profile, const std::string& file);

/// What the cost model is asked for an experiment with hardware.
Job job_of(const Experiment& experiment);

/// The costs of `program`, and what overlapping ops keep of their speed.
CostTable cost_table_of(const Experiment& experiment, const Program& program);
Contention contention_of(const Experiment& experiment);

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file);
/// The same of a program that program_for() made, for this or for an experiment that differs from it in
/// nothing that a program depends on (docs/architecture.md, section 5: costs are none of it).
SimulatedRun run_simulated(Program program, const Experiment& experiment);

}  // namespace stp
