#include "emulated_run.h"

#include <numeric>

#include "run_simulated.h"

namespace stp {
Experiment emulated_experiment(Experiment experiment, const std::string& file) {
  const auto refuse = [&](const std::string& field, const std::string& problem, const std::string& remedy) {
    throw InputError(file, (experiment.field.empty() ? "" : experiment.field + ".") + field, problem, remedy);
  };
  const Strategy& strategy = experiment.strategy;
  if (experiment.run)
    refuse("run", "computes, and emulated kernels only take time",
           "remove it and give costs.unit or a cluster, or use --backend cpu");
  if (experiment.unit_costs && experiment.unit_costs->all_reduce > 0 && strategy.tp == 1)
    refuse("parallel.tp", "is 1, and a rank without a tensor-parallel group makes no all-reduce",
           "use 2, or leave costs.unit.all_reduce out");
  if (experiment.hardware && experiment.hardware->model.tied() && strategy.pp > 1)
    refuse("model", "is " + experiment.hardware->model.name + ", whose tied head is not emulated",
           "use one with an untied head, or a pipeline of one rank");
  if (strategy.tp_overlap == TpOverlap::flux)
    refuse("tp_overlap", "is flux, which is only simulated", "use another");
  if (experiment.hardware) experiment.hardware->contention = false;
  Experiment::Run run{};
  const std::vector<int>& layers = experiment.layers_per_chunk;
  run.model =
      stand_in(experiment.hardware ? experiment.hardware->model : ModelConfig{},
               layers.empty() ? model_layers(experiment) : std::accumulate(layers.begin(), layers.end(), 0),
               strategy.tp * strategy.cp);
  run.seq = kTokensMerged * strategy.tp * strategy.cp;
  run.vision_tokens = run.model.has_vision() ? run.seq : 0;
  run.type = DType::f32;
  run.warmup = 1;
  run.steps = 3;
  run.clip_norm = 1;
  experiment.run = run;
  return experiment;
}

std::vector<double> emulated_seconds(const Experiment& experiment, const Program& program) {
  std::vector<double> seconds = op_seconds(program, cost_table_of(experiment, program));
  for (OpId op = 0; experiment.unit_costs && op < seconds.size(); ++op)
    if (program.ops[op].unit == Unit::embedding) seconds[op] = 0;
  return seconds;
}

}  // namespace stp
