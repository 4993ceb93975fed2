#include <utility>

#include "experiment_memory.h"
#include "progress.h"
#include "run_simulated.h"
#include "stp/schedule/repetition.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/steady_state.h"

namespace stp {
namespace {

Simulation simulated(Program program, const Experiment& experiment) {
  CostTable table = cost_table_of(experiment, program);
  std::vector<double> seconds = op_seconds(program, table);
  Timeline timeline = timeline_of(program, seconds, contention_of(experiment));
  return {std::move(program), std::move(table), std::move(seconds), std::move(timeline)};
}

// What the experiment makes of a simulation.
Result result_of(const Experiment& experiment, const Simulation& simulation) {
  const auto& [program, table, seconds, timeline] = simulation;
  Result result;
  result.schedule = program.schedule.name;
  result.configuration = configuration_of(experiment, program);
  const Configuration& configuration = result.configuration;
  result.step_times_s = {timeline.step_s};
  result.ranks = rank_results(experiment, program, timeline);
  result.tp_communication_share = tp_communication_share(table);
  if (const double bound = step_bound_of(experiment, program, table); bound > 0) result.lower_bound_s = bound;
  result.offload_ratio_bound = offload_ratio_bound(program, table, seconds);
  if (!experiment.hardware) return result;
  const auto& hardware = *experiment.hardware;
  const std::vector<RankResult::Memory> memory = memory_by_rank(experiment, program);
  for (size_t rank = 0; rank < memory.size(); ++rank) result.ranks[rank].memory = memory[rank];
  if (const auto needed = result.peak_total_gb()) {
    result.memory_margin_gb = hardware.profile.memory_bytes / 1e9 - *needed;
    result.fits = fit_of(hardware.profile, *result.memory_margin_gb);
  }
  // Factors of time do not define a number of operations.
  const bool alike = experiment.layer_costs.empty() && experiment.microbatch_costs.empty();
  if (const auto throughput = result.throughput(); throughput && alike) {
    const double per_gpu = *throughput / configuration.strategy.world_size() / hardware.profile.peak_flops;
    result.mfu = per_gpu * model_flops(hardware.model, hardware.seq, hardware.vision_tokens);
    // The paper's formula is for its own language models.
    if (hardware.model.family == Family::qwen2 && !hardware.model.has_vision())
      result.mfu_paper = per_gpu * model_flops_paper(hardware.model, hardware.seq);
  }
  return result;
}

}  // namespace

std::vector<RankResult> rank_results(const Experiment& experiment, const Program& program,
                                     const Timeline& timeline) {
  const std::vector<int> chunks = peak_activations(program.schedule, experiment.freed_at == FreedAt::I);
  std::vector<RankResult> ranks;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    const RankTime& time = timeline.ranks[rank];
    ranks.push_back({time.compute_s,
                     time.pp_bubble_s,
                     time.tp_bubble_s,
                     chunks[rank] / experiment.strategy.parts_of_microbatch(),
                     {}});
  }
  return ranks;
}

SimulatedRun run_simulated(const ScheduleChoice& choice, const Experiment& experiment,
                           const std::string& file) {
  if (experiment.run)
    throw InputError(file, "run", "makes this a scenario for devices", "use stp run, or remove it");
  return run_simulated(program_for(choice, experiment, file), experiment);
}

SimulatedRun run_simulated(Program program, const Experiment& experiment) {
  begin_phase(program.schedule.name + ": simulating " + std::to_string(program.ops.size()) + " ops");
  Simulation simulation = simulated(std::move(program), experiment);
  begin_phase(simulation.program.schedule.name + ": counting memory");
  Result result = result_of(experiment, simulation);
  return {std::move(simulation.program), std::move(simulation.timeline), std::move(result)};
}

Simulation simulated_totals(const Schedule& schedule, const Experiment& experiment,
                            const std::function<Program(const Schedule&)>& lowered) {
  const Strategy& strategy = experiment.strategy;
  const bool repeats =
      experiment.microbatch_costs.empty() && strategy.offload_chunks == 0 && !strategy.post_validation;
  // 1F1B is steady after p microbatches, ZB-V after 4.5 p.
  for (int first = strategy.pp; repeats && 4 * first <= schedule.microbatches; first *= 2) {
    const auto shortened = shorten(schedule, first);
    if (!shortened) continue;
    Simulation totals = simulated(lowered(shortened->schedule), experiment);
    if (add_repetitions(totals.program, totals.seconds, *shortened, totals.timeline)) return totals;
  }
  return simulated(lowered(schedule), experiment);
}

Result simulated_result(const Schedule& schedule, const std::vector<int>& layers,
                        const Experiment& experiment) {
  return result_of(experiment, simulated_totals(schedule, experiment, [&](const Schedule& of) {
                     return lower(of, layers, lowering_for(experiment, of, layers));
                   }));
}

}  // namespace stp
