// One experiment in virtual time: schedule, program, costs, simulation, result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenario.h"
#include "stp/cost/step_bound.h"
#include "stp/report/record.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// The outcome of one simulated schedule.
struct SimulatedRun {
  Program program;
  Timeline timeline;
  Result result;
};

/// Makes and validates the schedule of `choice` for `experiment`. `file`: the scenario's file, for errors.
Schedule schedule_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

/// The part of an activation that stays from I to W, as the scenario counts it; generators read it.
double kept_for_W(const Experiment& experiment);
/// The costs that a cost-aware generator reads, of this number of chunks.
PassCosts costs_for_generator(const Experiment& experiment, int chunks);

/// Makes the schedule and lowers it.
Program program_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file);

/// The configuration of a result.
Configuration configuration_of(const Experiment& experiment, const Program& program);

/// Bytes that the tensors of all ranks of a run take at least at their peaks: parameters and their state, and
/// what layers save for backwards.
double bytes_of_run(const Program& program, const Experiment& experiment);

/// Predicts a step in float32 by the suite's own kernels. `experiment` must have a `run`.
Prediction predict_step(const ScheduleChoice& choice, const Experiment& experiment,
                        const HardwareProfile& profile, const std::string& file);

/// The cost model's input for an experiment with hardware, whose ranks may share the vocabulary.
Job job_of(const Experiment& experiment, Vocabulary vocabulary = Vocabulary::whole);

/// The lowering of a schedule, with the order of braids by times, which needs the costs of a Program.
Lowering lowering_for(const Experiment& experiment, const Schedule& schedule, const std::vector<int>& layers);

/// Layers by virtual stage. A balanced split fits into memory and is improved by simulations of those nearby;
/// without `nearby` it is made of costs alone.
std::vector<int> layers_for(const Experiment& experiment, const Schedule& schedule, bool nearby = true);
/// Throws InputError if more layers are to be recomputed than any chunk has.
void check_recompute(const Experiment& experiment, const std::vector<int>& layers);

/// The costs of `program`, and the contention of overlapping ops.
CostTable cost_table_of(const Experiment& experiment, const Program& program);
Contention contention_of(const Experiment& experiment);

/// Returns a function that simulates a step of other orders with the placement and split of `like`. It is
/// infinite where the program does not fit.
std::function<double(const Schedule&)> order_timer(const Experiment& experiment, const Program& like,
                                                   const std::function<bool(const Program&)>& fits);

/// The least that a step of this placement and split takes with any order (lib/stp/cost/step_bound.h).
double step_bound_of(const Experiment& experiment, const Program& program, const CostTable& table,
                     int activation_limit = 0);

/// A step of `program`, whose ops take `seconds`.
Timeline timeline_of(const Program& program, const std::vector<double>& seconds,
                     const Contention& contention);

/// What ranks did by `timeline`, without their memory.
std::vector<RankResult> rank_results(const Experiment& experiment, const Program& program,
                                     const Timeline& timeline);

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file);
/// Simulates a program of program_for(), made for this experiment or for one that differs only in properties
/// that do not affect programs, such as costs (docs/architecture.md, section 5).
SimulatedRun run_simulated(Program program, const Experiment& experiment);
/// A program, its costs and its simulated step.
struct Simulation {
  Program program;
  CostTable table;
  std::vector<double> seconds;  // by op
  Timeline timeline;
};
/// Simulates what `lowered` makes of the schedule or, where that repeats itself in a steady state, of a
/// shortened one: repetitions are neither lowered nor simulated. The timeline's `step_s` and `ranks` are
/// those of the whole schedule but for rounding (below 1e-9); all else is of the schedule that was simulated.
Simulation simulated_totals(const Schedule& schedule, const Experiment& experiment,
                            const std::function<Program(const Schedule&)>& lowered);
/// The result of simulated_totals().
Result simulated_result(const Schedule& schedule, const std::vector<int>& layers,
                        const Experiment& experiment);

/// Whether an earlier call has finished a row.
using FinishedRow = std::function<bool(const Experiment&, const ScheduleChoice&)>;
using RowVisit = std::function<void(std::optional<SimulatedRun>, const Experiment&, const ScheduleChoice&)>;

/// Simulates each schedule of each configuration on all cores, shows progress, and calls visit(run,
/// experiment, choice) in their order on this thread. If the scenario allows it, it leaves out combinations
/// that the schedule refuses; InputError if nothing is left. Throws if interrupted. Rows that are `finished`
/// are not simulated, and have no run.
void simulate_rows(const Scenario& scenario, const RowVisit& visit, const FinishedRow& finished = {});

}  // namespace stp
