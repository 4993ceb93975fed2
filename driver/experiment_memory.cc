#include "experiment_memory.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "run_simulated.h"
#include "stp/cost/memory.h"

namespace stp {
namespace {

// The memory of a rank, without that on the host.
RankResult::Memory memory_of(const Experiment& experiment, const Job& job, const Program& program, int rank,
                             double parameters, const std::vector<ActivationBytes>& by_stage,
                             double activations) {
  const ParameterBytes bytes = parameter_bytes(parameters, job);
  const Placement& placement = program.schedule.placement;
  bool last = false;
  std::optional<double> of_first;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const int stage = placement.stage(rank, chunk);
    last = last || program.has_head(stage);
    if (program.has_embedding(stage)) of_first = by_stage[stage].until_I;
  }
  return {.activations = activations,
          .weights = bytes.weights,
          .gradients = bytes.gradients,
          .optimizer = bytes.optimizer,
          .host = 0,
          .buffers = working_bytes(parameters, job, last, of_first).beside(activations),
          .fixed = experiment.hardware->profile.fixed_memory_bytes};
}

// The most bytes of activations that a rank holds.
double peak_of(const Job& job, const Program& program, const Experiment& experiment) {
  return std::ranges::max(peak_activation_bytes(
      program, activation_bytes(job, program.layers_per_stage, program.schedule.placement.pipelines()),
      experiment.microbatch_costs));
}

}  // namespace

double even_margin_gb(const Experiment& experiment) {
  const auto& [model, profile] = std::tie(experiment.hardware->model, experiment.hardware->profile);
  const Job job = job_of(experiment);
  const double parameters = parameters_per_rank(job, {model.layers}, Placement::loop(1, 1))[0];
  const ParameterBytes bytes = parameter_bytes(parameters / experiment.strategy.pp, job);
  return (profile.memory_bytes - profile.fixed_memory_bytes - bytes.weights - bytes.gradients -
          bytes.optimizer) /
         1e9;
}

Fits fits_into_memory(const Experiment& experiment, const Placement& placement, const Program& order) {
  return [&experiment, &placement, &order, job = job_of(experiment, order.vocabulary)](
             int rank, const std::vector<int>& of_chunks) {
    std::vector<int> layers(placement.stages(), 0);
    for (int chunk = 0; chunk < placement.chunks(); ++chunk)
      layers[placement.stage(rank, chunk)] = of_chunks[chunk];
    const std::vector<ActivationBytes> by_stage = activation_bytes(job, layers);
    const double activations = peak_activation_bytes(order, rank, by_stage, experiment.microbatch_costs);
    return memory_of(experiment, job, order, rank, parameters_per_rank(job, layers, placement)[rank],
                     by_stage, activations)
               .on_device() <= experiment.hardware->profile.memory_bytes;
  };
}

std::vector<RankResult::Memory> memory_by_rank(const Experiment& experiment, const Program& program) {
  const Job job = job_of(experiment, program.vocabulary);
  const Placement& placement = program.schedule.placement;
  const std::vector<ActivationBytes> by_stage =
      activation_bytes(job, program.layers_per_stage, placement.pipelines());
  const auto activations = peak_activation_bytes(program, by_stage, experiment.microbatch_costs),
             host = peak_host_bytes(program, by_stage);
  const auto parameters = parameters_per_rank(job, program.layers_per_stage, placement);
  std::vector<RankResult::Memory> memory;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    memory.push_back(
        memory_of(experiment, job, program, rank, parameters[rank], by_stage, activations[rank]));
    memory.back().host = host[rank];
  }
  return memory;
}

double margin_gb(const Experiment& experiment, const Program& program) {
  double most = 0;
  for (const auto& memory : memory_by_rank(experiment, program)) most = std::max(most, memory.on_device());
  return (experiment.hardware->profile.memory_bytes - most) / 1e9;
}

double peak_bytes(const Program& program, const Experiment& experiment) {
  return experiment.hardware ? peak_of(job_of(experiment, program.vocabulary), program, experiment) : 0;
}

Fit fit_of(const HardwareProfile& profile, double margin_gb, double peak_error) {
  const double more = std::max((profile.most_fixed_memory_bytes - profile.fixed_memory_bytes) / 1e9,
                               peak_error * (profile.memory_bytes / 1e9 - margin_gb)),
               less = (profile.fixed_memory_bytes - profile.least_fixed_memory_bytes) / 1e9;
  return margin_gb >= more ? Fit::yes : margin_gb >= -less ? Fit::maybe : Fit::no;
}

double peak_gb_without_recompute(const Program& program, const Experiment& experiment) {
  Job job = job_of(experiment, program.vocabulary);
  job.shape.strategy.recompute = {};
  return peak_of(job, program, experiment) / 1e9;
}

}  // namespace stp
