#include "run_simulated.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "baselines/registry.h"
#include "choices.h"
#include "experiment_memory.h"
#include "interrupt.h"
#include "progress.h"
#include "stp/cost/balance.h"
#include "stp/cost/memory.h"
#include "stp/cost/timed_braid.h"
#include "stp/model/partition.h"
#include "stp/schedule/merge_backward.h"
#include "stp/schedule/read_schedule.h"
#include "stp/schedule/share_vocabulary.h"
#include "table.h"

namespace stp {
namespace {

int chunks_for(const Generator& generator, const Experiment& experiment) {
  if (experiment.chunks > 0) return experiment.chunks;
  const int entries = static_cast<int>(experiment.layers_per_chunk.size());
  if (generator.any_chunks && entries > 0 && entries % experiment.strategy.pp == 0)
    return entries / experiment.strategy.pp;
  return generator.chunks;
}

bool has_encoder(const Experiment& experiment) {
  const SampledModel* const model = model_of(experiment);
  return model != nullptr && model->model.has_vision();
}

// Layers by a rule that does not use costs.
std::vector<int> layers_by_rule(const Experiment& experiment, int stages) {
  if (!experiment.layers_per_chunk.empty()) return experiment.layers_per_chunk;
  const int count = model_layers(experiment);
  const auto partition = experiment.split == LayerSplit::paper ? paper_partition : even_partition;
  if (!has_encoder(experiment) || stages < 2) return partition(count, stages);
  std::vector<int> layers = partition(count, stages - 1);
  layers.insert(layers.begin(), 0);  // the encoder's stage
  return layers;
}

BucketRule bucket_rule(const Experiment& experiment, const ModelConfig& model) {
  BucketRule rule = megatron_bucket_rule(model, experiment.strategy);
  if (experiment.hardware && experiment.hardware->recipe.bucket_parameters > 0)
    rule.size = experiment.hardware->recipe.bucket_parameters;
  return rule;
}

Lowering lowering_of(const Experiment& experiment) {
  const bool of_model = !experiment.unit_costs || experiment.run;  // emulated, unit costs have a model, too
  const int replicas = experiment.strategy.replicas();
  return {.release = experiment.release,
          .backward = experiment.backward,
          .optimizer = of_model || experiment.strategy.post_validation,
          .braid = experiment.braid,
          .strategy = experiment.strategy,
          .data_parallel = replicas > 1,
          .buckets = of_model ? bucket_rule(experiment, model_of(experiment)->model) : BucketRule{},
          .one_bucket_of_several_chunks = experiment.hardware && experiment.hardware->recipe.gathers_in_step,
          .embedding = of_model,
          .tied = of_model && model_of(experiment)->model.tied(),
          .vision_layers = has_encoder(experiment) ? model_of(experiment)->model.vision.layers : 0};
}

// The costs of layers and microbatches without factors.
CostTable base_cost_table(const Experiment& experiment, const Program& program) {
  if (!experiment.hardware) return *experiment.unit_costs;
  const HardwareProfile& profile = experiment.hardware->profile;
  CostTable table =
      hardware_cost_table(job_of(experiment, program.vocabulary), profile, program.layers_per_stage,
                          program.schedule.placement, program.first_buckets);
  if (is_batched(experiment.release, program.schedule.chunks()))
    for (double* transfer :
         {&table.transfer_within_node, &table.transfer_between_nodes, &table.transfer_beside_another})
      *transfer += profile.batched_transfer_s;
  return table;
}

// The costs of planned copies: of the largest chunk, as all copies take turns.
CopyRequest copy_costs(const Experiment& experiment, const Placement& placement,
                       const std::vector<int>& layers) {
  const Strategy& strategy = experiment.strategy;
  if (strategy.offload == 0 || strategy.offload_chunks == 0) return {};
  CopyRequest request;
  const double k = strategy.offload_round_trip > 0 ? strategy.offload_round_trip : 1;
  PassCosts& costs = request.costs;
  if (experiment.schedule_costs) {
    costs = *experiment.schedule_costs;
    if (costs.F + costs.I + costs.W == 0)
      throw InputError("", "schedule_costs", "are 0, and planned copies need time", "give other costs");
  } else {
    const CostTable table =
        hardware_cost_table(job_of(experiment), experiment.hardware->profile, layers, placement);
    costs = pass_costs(table, *std::ranges::max_element(layers), lowering_of(experiment));
    request.seconds =
        std::max(*std::ranges::max_element(table.offload), *std::ranges::max_element(table.reload));
    if (strategy.offload_round_trip == 0) return request;
  }
  request.seconds = k / 2 * (costs.F + costs.I + costs.W);
  return request;
}

// Of all simulations of splits together, counted as if each were of the whole schedule.
constexpr double kOpsOfSplits = 2e7;

// Layers from the balancer, which gets the schedule's placement and, from its order, the activations of each
// rank; then from simulations of nearby splits.
std::vector<int> balanced_layers(const Schedule& schedule, const Experiment& experiment, bool nearby) {
  const Placement& placement = schedule.placement;
  if (placement.chunks() > 2)
    throw InputError("", "layers_per_chunk",
                     "is balanced, which is for one or two chunks a rank, and " + schedule.name + " has " +
                         std::to_string(placement.chunks()),
                     "write \"even\", or one number per virtual stage");
  Lowering lowering = lowering_of(experiment);
  lowering.braid = BraidPolicy::static_merge;
  const int first = has_encoder(experiment) ? 1 : 0;
  std::vector<int> any_size(placement.stages(), 1);
  if (first > 0) any_size.front() = 0;
  const Program order = lower(schedule, any_size, lowering);
  CostTable table = base_cost_table(experiment, order);
  if (!table.by_rank.empty())
    throw InputError("", "layers_per_chunk", "is balanced, which is for costs that all ranks share",
                     "write one number for each pass of costs.unit, or one number per virtual stage");
  if (order.vocabulary != Vocabulary::whole)  // no stage has more of the head than another
    for (const Unit unit : {Unit::head, Unit::embedding}) table.unit[static_cast<size_t>(unit)] = {};
  SplitCosts costs = split_costs(table, lowering, placement.stages());
  costs.layer_factors = experiment.layer_costs;
  const Fits fits = experiment.hardware && nearby ? fits_into_memory(experiment, placement, order)
                                                  : [](int, const std::vector<int>&) { return true; };
  const int count = model_layers(experiment);
  const auto split = balanced_partition(count, costs, placement, first, fits);
  if (!split)
    throw InputError("", "layers_per_chunk",
                     "cannot be balanced: no split of " + std::to_string(count) + " layers over the " +
                         std::to_string(placement.stages()) + " virtual stages of " + schedule.name +
                         " fits into the " +
                         std::to_string(std::llround(experiment.hardware->profile.memory_bytes / 1e9)) +
                         " GB of " + experiment.hardware->profile.name,
                     "use more ranks, recompute or a smaller microbatch_size, write \"even\" or the numbers, "
                     "or leave such combinations out with --keep-going");
  if (!nearby) return *split;
  const auto& factors = experiment.microbatch_costs;
  const double microbatches =
      factors.empty() ? schedule.microbatches : std::accumulate(factors.begin(), factors.end(), 0.0);
  const auto step_seconds = [&](const std::vector<int>& layers) {
    check_interrupted();
    return simulated_totals(schedule, experiment,
                            [&](const Schedule& of) { return lower(of, layers, lowering); })
        .timeline.step_s;
  };
  const auto ops = static_cast<double>(lower(schedule, *split, lowering).ops.size());
  return fastest_nearby(*split, layers_by_rule(experiment, placement.stages()), costs, placement, first, fits,
                        microbatches, step_seconds, static_cast<int>(kOpsOfSplits / ops));
}

Schedule schedule_of_file(const ScheduleChoice& choice, const Experiment& experiment) {
  Schedule schedule = read_schedule_file(choice.file);
  if (experiment.chunks > 0 && schedule.chunks() != experiment.chunks)
    throw InputError(choice.file, "chunks",
                     "the file has " + std::to_string(schedule.chunks()) + " a rank, the scenario " +
                         std::to_string(experiment.chunks),
                     "change the scenario or generate the file again");
  if (schedule.pp() != experiment.strategy.pp || schedule.all_microbatches() != experiment.microbatches)
    throw InputError(choice.file, schedule.pp() != experiment.strategy.pp ? "pp" : "microbatches",
                     "the file is for pp " + std::to_string(schedule.pp()) + " and " +
                         std::to_string(schedule.all_microbatches()) + " microbatches, the scenario for pp " +
                         std::to_string(experiment.strategy.pp) + " and " +
                         std::to_string(experiment.microbatches),
                     "change the scenario or generate the file again");
  return schedule;
}

Schedule generated_schedule(const ScheduleChoice& choice, const Experiment& experiment,
                            const std::string& file) {
  try {
    const Generator& generator = find_generator(choice.name);
    const int chunks = chunks_for(generator, experiment);
    const PassCosts costs = generator.cost_aware ? costs_for_generator(experiment, chunks) : PassCosts{};
    return make_schedule(generator, {.pp = experiment.strategy.pp,
                                     .microbatches = experiment.microbatches,
                                     .chunks = chunks,
                                     .costs = costs,
                                     .options = choice.options,
                                     .kept_for_W = kept_for_W(experiment)});
  } catch (const InputError& error) {
    throw error.in_field("schedules").below(experiment.field).in_file(file);
  }
}

Job job_of(const Experiment& experiment, const SampledModel& model, Implementation implementation) {
  const Strategy& strategy = experiment.strategy;
  return {.model = model.model,
          .shape = {.seq = model.seq,
                    .microbatch_size = experiment.microbatch_size / strategy.parts_of_microbatch(),
                    .strategy = strategy,
                    .vision_tokens = model.vision_tokens},
          .implementation = implementation};
}

}  // namespace

double kept_for_W(const Experiment& experiment) {
  if (experiment.freed_at != FreedAt::both) return experiment.freed_at == FreedAt::I ? 0 : 1;
  const ActivationBytes layer = activation_bytes(job_of(experiment), {1, 0}).front();
  return layer.until_W / layer.until_I;
}

PassCosts costs_for_generator(const Experiment& experiment, int chunks) {
  if (experiment.schedule_costs) return *experiment.schedule_costs;
  // A balanced split needs the schedule, and the schedule these costs, so they are costs of even chunks.
  const int stages = experiment.strategy.pp * chunks;
  std::vector<int> layers = layers_by_rule(experiment, stages);
  if (static_cast<int>(layers.size()) != stages)  // which check_lowering() refuses
    layers = even_partition(model_layers(experiment), stages);
  // Any placement works: the cost of passes does not depend on the rank.
  const CostTable table = hardware_cost_table(job_of(experiment), experiment.hardware->profile, layers,
                                              Placement::loop(experiment.strategy.pp, chunks));
  return pass_costs(table, *std::max_element(layers.begin(), layers.end()), lowering_of(experiment));
}

Job job_of(const Experiment& experiment, Vocabulary vocabulary) {
  const auto& hardware = *experiment.hardware;
  Job job = job_of(experiment, hardware, hardware.implementation);
  job.scatter_transfers = hardware.scatter_transfers;
  job.sends_share_adapter = hardware.sends_share_adapter;
  job.recipe = hardware.recipe;
  job.shape.shares_vocabulary = vocabulary != Vocabulary::whole;
  if (hardware.model_gradients) job.shape.gradient_bytes = job.shape.element_bytes;
  return job;
}

Lowering lowering_for(const Experiment& experiment, const Schedule& schedule,
                      const std::vector<int>& layers) {
  Lowering lowering = lowering_of(experiment);
  lowering.copies = copy_costs(experiment, schedule.placement, layers);
  if (experiment.hardware && vocabulary_of(schedule) != Vocabulary::whole)
    check_shared_vocabulary(experiment.hardware->model, experiment.strategy.tp, experiment.strategy.pp);
  if (!is_by_times(lowering.braid)) return lowering;
  Lowering evenly = lowering;
  evenly.braid = BraidPolicy::static_merge;
  lowering.order =
      braid_order(lowering.braid, base_cost_table(experiment, lower(schedule, layers, evenly)), lowering);
  return lowering;
}

std::vector<int> layers_for(const Experiment& experiment, const Schedule& schedule, bool nearby) {
  const Placement& placement = schedule.placement;
  if (placement.pipelines() == 1)
    return experiment.split == LayerSplit::balanced && experiment.layers_per_chunk.empty()
               ? balanced_layers(schedule, experiment, nearby)
               : layers_by_rule(experiment, placement.stages());
  const auto refuse = [&](const char* field, bool is_used, const char* remedy = "leave it out") {
    if (is_used)
      throw InputError("", field, "is not built for the two pipelines of " + schedule.name, remedy);
  };
  constexpr const char* kOther = "use another model, or another schedule";
  refuse("layers_per_chunk: balanced", experiment.split == LayerSplit::balanced);
  refuse("microbatch_costs", !experiment.microbatch_costs.empty());
  refuse("layer_costs", !experiment.layer_costs.empty());
  refuse("model.vision_config", has_encoder(experiment), kOther);
  refuse("model.tied", model_of(experiment) != nullptr && model_of(experiment)->model.tied(), kOther);
  refuse("post_validation", experiment.strategy.post_validation);
  std::vector<int> layers = layers_by_rule(experiment, placement.depth());
  layers.reserve(2 * layers.size());
  layers.insert(layers.end(), layers.begin(), layers.end());  // of the other pipeline's model
  return layers;
}

void check_recompute(const Experiment& experiment, const std::vector<int>& layers) {
  const int most = std::ranges::max(layers), again = experiment.strategy.recompute.first;
  if (again > most)
    throw InputError("", "recompute",
                     "is block-" + std::to_string(again) + ", and no chunk has more than " +
                         std::to_string(most) + " layers",
                     "write full, or fewer layers");
}

Schedule schedule_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file) {
  Schedule schedule = choice.file.empty() ? generated_schedule(choice, experiment, file)
                                          : schedule_of_file(choice, experiment);
  if (experiment.merge_backward) schedule = merge_backward(std::move(schedule));
  if (choice.vocabulary == Vocabulary::whole) return schedule;
  try {
    return share_vocabulary(std::move(schedule), choice.vocabulary);
  } catch (const InputError& error) {
    throw error.in_field("schedules").below(experiment.field).in_file(file);
  }
}

Program program_for(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file) {
  begin_phase(name_of(choice) + ": making the schedule");
  Schedule schedule = schedule_for(choice, experiment, file);
  begin_phase(schedule.name + ": making the program");
  try {
    const std::vector<int> layers = layers_for(experiment, schedule);
    check_recompute(experiment, layers);
    const Lowering lowering = lowering_for(experiment, schedule, layers);
    // Measured: STP of 32 layers at tp 4, the most ops a layer.
    say_cost(double{1} * schedule.microbatches * std::accumulate(layers.begin(), layers.end(), 0),
             "layers of microbatches", 900, 2.6e-6);
    return lower(std::move(schedule), layers, lowering);
  } catch (const InputError& error) {
    throw error.below(experiment.field).in_file(file);
  }
}

Configuration configuration_of(const Experiment& experiment, const Program& program) {
  Configuration configuration;
  configuration.name = experiment.name;
  configuration.strategy = experiment.strategy;
  configuration.strategy.zero = program.strategy.zero;
  configuration.microbatches = experiment.microbatches;
  configuration.microbatch_size = experiment.microbatch_size;
  configuration.layers_per_chunk = program.layers_per_stage;
  configuration.placement = program.schedule.placement.name();
  configuration.options = std::make_shared<const nlohmann::json>(options_json(experiment));
  configuration.unit_costs = experiment.unit_costs_as_read;
  if (experiment.hardware) configuration.cluster = experiment.hardware->profile.name;
  if (experiment.unit_costs) return configuration;
  const SampledModel& model = *model_of(experiment);
  configuration.model = model.model.name;
  configuration.seq = model.seq;
  return configuration;
}

double bytes_of_run(const Program& program, const Experiment& experiment) {
  const Experiment::Run& run = *experiment.run;
  const Strategy& strategy = experiment.strategy;
  Job job = job_of(experiment, run, Implementation::suite);
  const auto element = static_cast<double>(bytes_of(run.type)),
             state = static_cast<double>(bytes_of(statistics_type(run.type)));
  job.shape.element_bytes = static_cast<int>(element);
  job.shape.shares_vocabulary = program.vocabulary != Vocabulary::whole;
  job.model.variant.tied = false;                      // a rank with both ends has two copies
  const int states = run.type == DType::bf16 ? 3 : 2;  // two moments, and the master
  const double of_parameter = element + state + states * state / job.optimizer_shares();
  const auto parameters = parameters_per_rank(job, program.layers_per_stage, program.schedule.placement);
  double bytes = of_parameter * std::accumulate(parameters.begin(), parameters.end(), 0.0);
  for (const double saved : peak_activation_bytes(
           program, activation_bytes(job, program.layers_per_stage, program.schedule.placement.pipelines())))
    bytes += saved;
  return bytes * strategy.tp * strategy.replicas();
}

Prediction predict_step(const ScheduleChoice& choice, const Experiment& experiment,
                        const HardwareProfile& profile, const std::string& file) {
  const Experiment::Run& run = *experiment.run;
  if (run.type != DType::f32)
    throw InputError(file, "run.type", "is " + word_of(run.type, kTypes) + ", and predictions are of float32",
                     "use float32, or leave --predict out");
  Job job = job_of(experiment, run, Implementation::suite);
  job.shape.element_bytes = static_cast<int>(bytes_of(run.type));
  const Program program = program_for(choice, experiment, file);
  job.shape.shares_vocabulary = program.vocabulary != Vocabulary::whole;
  const CostTable table = hardware_cost_table(job, profile, program.layers_per_stage,
                                              program.schedule.placement, program.first_buckets);
  const int replicas = experiment.strategy.tp * experiment.strategy.replicas();
  const Timeline timeline =
      simulate(program, op_seconds(program, table),
               {profile.contention_compute, profile.contention_all_reduce}, {profile.shared.rates, replicas});
  return {profile.name, timeline.step_s,
          profile.shared.count() > 0 && replicas * experiment.strategy.pp > profile.shared.count()};
}

CostTable cost_table_of(const Experiment& experiment, const Program& program) {
  CostTable table = base_cost_table(experiment, program);
  table.layer_factors = experiment.layer_costs;
  table.microbatch_factors = experiment.microbatch_costs;
  return table;
}

Contention contention_of(const Experiment& experiment) {
  if (!experiment.hardware || !experiment.hardware->contention) return {};
  return {experiment.hardware->profile.contention_compute,
          experiment.hardware->profile.contention_all_reduce};
}

std::function<double(const Schedule&)> order_timer(const Experiment& experiment, const Program& like,
                                                   const std::function<bool(const Program&)>& fits) {
  const std::vector<int>& layers = like.layers_per_stage;
  return [fits, layers, lowering = lowering_for(experiment, like.schedule, layers),
          table = cost_table_of(experiment, like),
          contention = contention_of(experiment)](const Schedule& schedule) {
    const Program program = lower(schedule, layers, lowering);
    if (!fits(program)) return std::numeric_limits<double>::infinity();
    return timeline_of(program, op_seconds(program, table), contention).step_s;
  };
}

double step_bound_of(const Experiment& experiment, const Program& program, const CostTable& table,
                     int activation_limit) {
  const Placement& placement = program.schedule.placement;
  return step_bound(placement, experiment.microbatches / placement.pipelines(), program.layers_per_stage,
                    lowering_of(experiment), table, contention_of(experiment), program.vocabulary,
                    activation_limit);
}

Timeline timeline_of(const Program& program, const std::vector<double>& seconds,
                     const Contention& contention) {
  return program.strategy.post_validation ? simulate_repeated(program, seconds, contention)
                                          : simulate(program, seconds, contention);
}

}  // namespace stp
