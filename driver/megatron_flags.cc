#include "megatron_flags.h"

#include <algorithm>

#include "choices.h"
#include "framework.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::string flag(const std::string& name, const std::string& value = "") {
  return "--" + name + (value.empty() ? "" : " " + value) + "\n";
}

// Megatron-LM's arguments for the model; of dropouts and padding it has defaults of its own.
std::string flags_of_model(const ModelConfig& model, const json& file, int seq) {
  std::string text;
  const auto number = [&](const std::string& name, double value) {
    text += flag(name, shown("%.9g", value));
  };
  const auto only_if = [&](bool is_so, const std::string& name) { text += is_so ? flag(name) : ""; };
  number("num-layers", model.layers);
  number("hidden-size", model.hidden);
  number("ffn-hidden-size", model.ffn);
  number("num-attention-heads", model.q_heads);
  number("kv-channels", model.head_dim);
  if (model.kv_heads != model.q_heads)
    text += flag("group-query-attention") + flag("num-query-groups", std::to_string(model.kv_heads));
  text += flag("normalization", model.norm() == Norm::rms ? "RMSNorm" : "LayerNorm");
  if (file.contains(model.rotary() ? "rms_norm_eps" : "layer_norm_epsilon"))
    number("norm-epsilon", model.norm_epsilon);
  only_if(model.variant.query_key_norm, "qk-layernorm");
  only_if(model.gated(), "swiglu");
  only_if(model.activation() == Activation::squared_relu, "squared-relu");
  only_if(model.biases() != Biases::all, "disable-bias-linear");
  only_if(model.biases() == Biases::qkv, "add-qkv-bias");
  only_if(!model.tied(), "untie-embeddings-and-output-weights");
  text += flag("position-embedding-type", model.rotary() ? "rope" : "learned_absolute");
  if (model.rotary()) number("rotary-percent", model.variant.rotary_share);
  if (file.contains("rope_theta")) number("rotary-base", model.rope_theta);
  number("max-position-embeddings", std::max(seq, model.positions));
  number("attention-dropout", 0);
  number("hidden-dropout", model.variant.dropout);
  number("vocab-size", file.at("vocab_size").get<int>());
  number("make-vocab-size-divisible-by", std::max(1, model.vocab_multiple));
  text += "# simulated with a vocabulary of " + std::to_string(model.vocab) + "\n";
  for (const auto& [is_so, what] : {std::pair{model.norm() == Norm::layer_without_bias, "norms have no bias"},
                                    {model.activation() == Activation::gelu_tanh, "GELU is by tanh"}})
    if (is_so) text += std::string("# said by no argument: ") + what + "\n";
  return text;
}

// Megatron-LM has several chunks a rank from two pipeline ranks on.
bool is_interleaved(const Experiment& one) { return one.chunks > 1 && one.strategy.pp > 1; }

// Megatron-Core's arguments for types, optimizer, buckets and loss; and a comment for each setting that was
// simulated and that no argument says.
std::string flags_of_numbers(const Experiment& one, const Framework& megatron) {
  Experiment unsaid = one;  // what an argument says has its default
  Recipe& recipe = unsaid.hardware->recipe;
  std::string text = flag("bf16");
  const bool small_states = recipe.state_bytes < Recipe().state_bytes;
  if (small_states) {
    text += flag("use-precision-aware-optimizer");
    if (recipe.state_bytes == 6) text += flag("exp-avg-dtype", "bf16") + flag("exp-avg-sq-dtype", "bf16");
    recipe.state_bytes = Recipe().state_bytes;
  }
  if (one.hardware->model_gradients)
    text += small_states ? flag("main-grads-dtype", "bf16") : flag("grad-reduce-in-bf16");
  if (recipe.bucket_parameters > 0) text += flag("ddp-bucket-size", fixed(recipe.bucket_parameters, 0));
  recipe.bucket_parameters = 0;
  if (is_interleaved(one) && recipe.gathers_in_step) {
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
  for (const char* said :
       {"microbatches", "microbatch_size", "sequence_parallel", "recompute", "tp_overlap", "schedules",
        "parallel", "zero", "layers_per_chunk", "model", "seq", "cluster", "cluster_values", "gradients"})
    settings.erase(said);
  if (one.chunks == 1 || is_interleaved(one)) settings.erase("chunks");
  for (const auto& [name, value] : settings.items())
    if (usual.value(name, json()) != value)
      text += "# simulated, but said by no argument: " + name + " " + json_text(value) + "\n";
  return text;
}

}  // namespace

std::string megatron_flags(const Tuned& choice) {
  const Experiment& one = choice.experiment;
  const Strategy& strategy = one.strategy;
  const Framework& megatron = find_framework("megatron");
  if (!runs(megatron, one)) return "";
  const Recompute& recompute = strategy.recompute;
  std::string text;
  const auto number = [&](const std::string& name, int value) { text += flag(name, std::to_string(value)); };
  for (const Axis& axis : kAxes)
    if (axis.megatron != nullptr) number(axis.megatron, strategy.*axis.ranks);
  if (strategy.cp > 1 && strategy.cp_method == CpMethod::all_to_all) text += flag("cp-comm-type", "a2a");
  number("micro-batch-size", one.microbatch_size);
  number("global-batch-size", one.microbatch_size * one.microbatches * strategy.dp);
  number("seq-length", one.hardware->seq);
  const NamedData& model = one.hardware->model_data;
  text += flags_of_model(one.hardware->model, *model.content, one.hardware->seq);
  if (const std::string note = model.import.note(); !note.empty())
    text += "# " + model.name + ": " + note + "\n";
  const auto [least, most] = std::ranges::minmax(one.layers_per_chunk);
  if (least != most && strategy.pp > 1) {
    std::string layout;
    for (size_t stage = 0; stage < one.layers_per_chunk.size(); ++stage)
      layout += (stage == 0 ? "E" : "|") + std::string(one.layers_per_chunk[stage], 't');
    text += flag("pipeline-model-parallel-layout", "\"" + layout + "L\"");
  } else if (is_interleaved(one)) {
    number("num-virtual-stages-per-pipeline-rank", one.chunks);
  }
  if (strategy.sequence_parallel) text += flag("sequence-parallel");
  if (strategy.tp_overlap == TpOverlap::megatron) text += flag("tp-comm-overlap");
  if (strategy.zero) text += flag("use-distributed-optimizer");
  text += flag("overlap-grad-reduce");
  if (strategy.zero) text += flag("overlap-param-gather");
  if (recompute.layer)
    text += flag("recompute-granularity",
                 std::string("full --recompute-method ") + (recompute.first > 0 ? "block" : "uniform") +
                     " --recompute-num-layers " + std::to_string(std::max(1, recompute.first)));
  else if (recompute != Recompute{})
    text += flag("recompute-granularity",
                 "selective --recompute-modules " + std::string(recompute.mlp ? "mlp" : "core_attn"));
  return text + flags_of_numbers(one, megatron);
}

}  // namespace stp
