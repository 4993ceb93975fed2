#include "read_strategy.h"

#include "choices.h"

namespace stp {
namespace {

void read_parallel(JsonInput& input, Strategy& strategy) {
  JsonInput parallel = input.object("parallel");
  for (const Axis& axis : kAxes)
    strategy.*axis.ranks = axis.ranks == &Strategy::pp ? parallel.integer(axis.name, 1, axis.most)
                                                       : parallel.integer_or(axis.name, 1, 1, axis.most);
  const int64_t ranks = int64_t{strategy.tp} * strategy.cp * strategy.dp * strategy.pp;
  strategy.cp_method = choose(parallel, "cp_method", CpMethod::ring, kCpMethods);
  if (strategy.cp == 1 && parallel.has("cp_method"))
    throw parallel.error("cp_method", "is given, but parallel.cp is 1, and no ranks share a sequence",
                         "leave it out, or set parallel.cp");
  const bool run = input.has("run");
  const int64_t most = run ? 256 : 1 << 20;  // each rank of a run has several threads
  if (ranks > most)
    throw input.error("parallel",
                      "asks for more ranks than the " + std::to_string(most) + " that " +
                          (run ? "run here" : "can be simulated"),
                      "use fewer");
  parallel.done();
}

void read_offload(JsonInput& input, Strategy& strategy) {
  if (!input.has("offload")) return;
  JsonInput offload = input.object("offload");
  strategy.offload = offload.number("ratio", 0, 1);
  strategy.offload_chunks = offload.integer_or("chunks", 0, 1, kMaxChunks);
  for (const char* key : {"share", "round_trip"})
    if (offload.has(key) && strategy.offload_chunks == 0)
      throw offload.error(key, "is given, but no copies are planned", "give offload.chunks, or leave it out");
  strategy.offload_share = offload.integer_or("share", strategy.offload_share, 1, kMaxRanks);
  strategy.offload_round_trip = offload.number_or("round_trip", 0, 1e-6, 1e6);
  offload.done();
}

// Refuses options that the suite does not support with a vision encoder.
void check_vision(const JsonInput& input, const Experiment& experiment) {
  const Strategy& strategy = experiment.strategy;
  const auto refuse = [&](bool is_used, const char* field) {
    if (is_used) throw input.error(field, "is not built for models with a vision encoder", "leave it out");
  };
  refuse(strategy.cp > 1, "parallel.cp");
  refuse(strategy.sequence_parallel, "sequence_parallel");
  refuse(strategy.recompute != Recompute{}, "recompute");
  refuse(strategy.offload > 0, "offload");
  refuse(experiment.hardware && experiment.hardware->implementation == Implementation::megatron_2022,
         "implementation");
}

Recompute read_recompute(JsonInput& input) {
  const std::string word = input.string_or("recompute", "none");
  if (word == "core_attn") return {.core = true};  // as Megatron-Core calls it
  if (word == "layernorm" && !input.has("run")) return kLayernorm;
  if (const int layers = block_layers(word)) return {.layer = true, .first = layers};
  return choose(input, "recompute", Recompute{}, kRecomputes,
                input.has("run") ? ", block-N" : ", block-N, layernorm");
}

void read_tp_overlap(JsonInput& input, Experiment& experiment, const ModelConfig& model) {
  Strategy& strategy = experiment.strategy;
  strategy.tp_overlap = choose(input, "tp_overlap", TpOverlap::none, kTpOverlaps);
  if (strategy.tp == 1 && strategy.tp_overlap != TpOverlap::domino) strategy.tp_overlap = TpOverlap::none;
  if (strategy.tp_overlap == TpOverlap::none) return;
  if (experiment.microbatch_size % strategy.parts_of_microbatch() != 0)
    throw input.error("microbatch_size",
                      "is " + std::to_string(experiment.microbatch_size) +
                          ", and tp_overlap domino halves each microbatch along its samples",
                      "use an even number of samples, or another tp_overlap");
  if (strategy.tp_overlap == TpOverlap::domino) return;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw input.error("tp_overlap", problem, remedy);
  };
  if (!strategy.sequence_parallel)
    refuse("overlaps the collectives of sequence parallelism, which is off",
           "set sequence_parallel to true, or write none");
  if (strategy.tp_overlap == TpOverlap::flux) {
    if (experiment.run) refuse("is flux, a variant of the cost model that nothing runs", "simulate it");
    return;
  }
  if (model.hidden % kPipelineSteps != 0)
    refuse("cannot divide the " + std::to_string(model.hidden) + " columns of " + model.name + " by " +
               std::to_string(kPipelineSteps),
           "use another model, or write none");
  if (!experiment.hardware) return;
  const int node = experiment.hardware->profile.gpus_per_node;
  if (node % strategy.tp != 0)
    refuse("is for groups inside a node, and " + std::to_string(strategy.tp) +
               " ranks do not divide a node of " + std::to_string(node),
           "use another parallel.tp, or write none");
  if (experiment.hardware->implementation == Implementation::megatron_2022)
    refuse("is newer than megatron-2022", "use another implementation, or write none");
}

}  // namespace

void read_strategy(JsonInput& input, Experiment& experiment) {
  Strategy& strategy = experiment.strategy;
  read_parallel(input, strategy);
  strategy.zero = input.integer_or("zero", 0, 0, 1) == 1;
  strategy.post_validation = input.boolean_or("post_validation", false);
  read_offload(input, strategy);
}

void read_strategy_of_units(JsonInput& input, Experiment& experiment, const ModelConfig& model, int seq) {
  Strategy& strategy = experiment.strategy;
  // One rank has no rows to divide. Like Megatron-LM, it then has no collectives that would only order ops.
  strategy.sequence_parallel = input.boolean_or("sequence_parallel", false) && strategy.tp > 1;
  strategy.recompute = read_recompute(input);
  if (strategy.sequence_parallel && seq / strategy.cp % strategy.tp != 0)
    throw input.error("sequence_parallel",
                      "cannot divide " + std::to_string(seq) + " tokens by " +
                          (strategy.cp == 1 ? "" : std::to_string(strategy.cp) + " context-parallel and ") +
                          std::to_string(strategy.tp) + " tensor-parallel ranks",
                      strategy.cp == 1 ? "make seq a multiple of parallel.tp"
                                       : "make seq a multiple of parallel.cp * parallel.tp");
  read_tp_overlap(input, experiment, model);
  if (model.has_vision()) check_vision(input, experiment);
}

}  // namespace stp
