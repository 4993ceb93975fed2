#include "megatron_flags.h"

#include <algorithm>

#include "choices.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::string flag(const std::string& name, const std::string& value = "") {
  return "--" + name + (value.empty() ? "" : " " + value) + "\n";
}

// Megatron-Core's arguments for types, optimizer, buckets and loss; and a comment for each setting that was
// simulated and that no argument says.
std::string flags_of_numbers(const Experiment& one, const Framework& megatron) {
  const bool zero = one.strategy.zero;
  Experiment unsaid = one;  // what an argument says has its default
  Recipe& recipe = unsaid.hardware->recipe;
  std::string text = flag("bf16");
  const bool small_states = zero && recipe.state_bytes < Recipe().state_bytes;
  if (small_states) {
    text += flag("use-precision-aware-optimizer");
    if (recipe.state_bytes == 6) text += flag("exp-avg-dtype", "bf16") + flag("exp-avg-sq-dtype", "bf16");
    recipe.state_bytes = Recipe().state_bytes;
  }
  if (one.hardware->model_gradients)
    text += small_states ? flag("main-grads-dtype", "bf16") : flag("grad-reduce-in-bf16");
  if (recipe.bucket_parameters > 0) text += flag("ddp-bucket-size", fixed(recipe.bucket_parameters, 0));
  recipe.bucket_parameters = 0;
  if (zero && one.chunks > 1 && recipe.gathers_in_step) {
    text += flag("overlap-param-gather-with-optimizer-step");
    recipe.gathers_in_step = false;
  }
  if (uses_transformer_engine(one.hardware->implementation))
    text += flag("cross-entropy-loss-fusion") + flag("cross-entropy-fusion-impl", "te") +
            "# Megatron-Core refuses te from 0.19 on; without both the loss keeps more memory\n";
  if (one.chunks == 1 && one.release == Release::megatron_batched) unsaid.release = Release::megatron;
  json usual = json::parse(megatron.fields);
  usual.update({{"braid", "static"}, {"freed_at", "W"}, {"contention", true}, {"scatter_transfers", false}});
  json settings = to_json(unsaid);
  for (const char* said : {"microbatches", "microbatch_size", "sequence_parallel", "recompute", "tp_overlap",
                           "schedules", "parallel", "zero", "layers_per_chunk", "chunks", "model", "seq",
                           "cluster", "cluster_values", "gradients"})
    settings.erase(said);
  for (const auto& [name, value] : settings.items())
    if (usual.value(name, json()) != value)
      text += "# simulated, but said by no argument: " + name + " " + json_text(value) + "\n";
  return text;
}

}  // namespace

std::string megatron_flags(const Tuned& choice) {
  const Experiment& one = choice.experiment;
  const Strategy& strategy = one.strategy;
  const Framework& megatron = *std::ranges::find(frameworks(), std::string("megatron"), &Framework::name);
  const auto among = [](const std::vector<std::string>& words, const std::string& word) {
    return std::ranges::find(words, word) != words.end();
  };
  const std::string recompute = word_of(strategy.recompute, kRecomputes);
  if (!among(megatron.schedules, name_of(choice.choice())) || !among(megatron.recompute, recompute) ||
      !among(megatron.tp_overlap, word_of(strategy.tp_overlap, kTpOverlaps)) || strategy.offload > 0)
    return "";
  std::string text;
  const auto number = [&](const std::string& name, int value) { text += flag(name, std::to_string(value)); };
  for (const Axis& axis : kAxes)
    if (axis.megatron != nullptr) number(axis.megatron, strategy.*axis.ranks);
  if (strategy.cp > 1 && strategy.cp_method == CpMethod::all_to_all) text += flag("cp-comm-type", "a2a");
  number("micro-batch-size", one.microbatch_size);
  number("global-batch-size", one.microbatch_size * one.microbatches * strategy.dp);
  number("seq-length", one.hardware->seq);
  number("num-layers", one.hardware->model.layers);
  const auto [least, most] = std::ranges::minmax(one.layers_per_chunk);
  if (least != most) {
    std::string layout;
    for (size_t stage = 0; stage < one.layers_per_chunk.size(); ++stage)
      layout += (stage == 0 ? "E" : "|") + std::string(one.layers_per_chunk[stage], 't');
    text += flag("pipeline-model-parallel-layout", "\"" + layout + "L\"");
  } else if (one.chunks > 1) {
    number("num-virtual-stages-per-pipeline-rank", one.chunks);
  }
  if (strategy.sequence_parallel) text += flag("sequence-parallel");
  if (strategy.tp_overlap == TpOverlap::megatron) text += flag("tp-comm-overlap");
  if (strategy.zero) text += flag("use-distributed-optimizer");
  text += flag("overlap-grad-reduce");
  if (strategy.zero) text += flag("overlap-param-gather");
  if (recompute == "full")
    text += flag("recompute-granularity", "full --recompute-method uniform --recompute-num-layers 1");
  if (recompute == "selective" || recompute == "mlp")
    text += flag("recompute-granularity",
                 "selective --recompute-modules " + std::string(recompute == "mlp" ? "mlp" : "core_attn"));
  return text + flags_of_numbers(one, megatron);
}

}  // namespace stp
