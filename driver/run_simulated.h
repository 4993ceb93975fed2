// One experiment in virtual time: schedule, program, costs, simulation, result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenario.h"
#include "stp/report/record.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// The outcome of one simulated schedule.
struct SimulatedRun {
  Program program;
  Timeline timeline;
  Result result;
};

/// The schedule that `choice` names for `experiment`, validated. `file` is the scenario's, for errors.
Schedule schedule_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

/// The same, lowered.
Program program_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

/// The configuration of a result, without the model.
Configuration configuration_of(const Experiment& experiment, const Program& program);

/// A profile's prediction of one step of an experiment on devices.
struct StepPrediction {
  double step_s;
  bool oversubscribed;  // more ranks than shared processors
};
/// For an experiment with a `run`, in float32, by the suite's own kernels.
StepPrediction predict_step(const ScheduleChoice& choice, const Experiment& experiment,
                            const HardwareProfile& profile, const std::string& file);

/// The cost model's input for an experiment with hardware.
Job job_of(const Experiment& experiment);

/// The costs of `program`, and the contention of overlapping ops.
CostTable cost_table_of(const Experiment& experiment, const Program& program);
Contention contention_of(const Experiment& experiment);

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file);
/// The same of a program that program_for() made, for this experiment or one that differs only in what
/// programs do not depend on, such as costs (docs/architecture.md, section 5).
SimulatedRun run_simulated(Program program, const Experiment& experiment);

/// Simulates each schedule of each configuration, shows progress, and calls visit(run, experiment). What a
/// schedule refuses is left out if the scenario says so; InputError if nothing is left. Throws if
/// interrupted.
void simulate_rows(const Scenario& scenario,
                   const std::function<void(SimulatedRun, const Experiment&)>& visit);

}  // namespace stp
