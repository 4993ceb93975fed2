#include "stp/model/hugging_face_names.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"

namespace stp {
namespace {

constexpr std::pair<const char*, const char*> kNames[] = {
    {"embedding.weight", "model.embed_tokens.weight"},
    {"head.norm.gain", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
    {"attn.norm.gain", "input_layernorm.weight"},
    {"attn.q.", "self_attn.q_proj."},
    {"attn.k.", "self_attn.k_proj."},
    {"attn.v.", "self_attn.v_proj."},
    {"attn.projection.", "self_attn.o_proj."},
    {"mlp.norm.gain", "post_attention_layernorm.weight"},
    {"mlp.gate.", "mlp.gate_proj."},
    {"mlp.up.", "mlp.up_proj."},
    {"mlp.down.", "mlp.down_proj."},
};

struct Class {
  const char *type, *name;
};
Class class_of(const ModelConfig& model) {
  if (model.biases() == Biases::none) return {"llama", "LlamaForCausalLM"};
  return {"qwen2", "Qwen2ForCausalLM"};
}

}  // namespace

void check_hugging_face_has(const ModelConfig& model, const std::string& field) {
  if (model.family != Family::qwen2 || model.has_vision())
    throw InputError("", field, "is of a Llama or Qwen2, but " + model.name + " is another kind of model",
                     "use a model_type qwen2 without vision_config, or leave it out");
}

nlohmann::json hugging_face_config(const ModelConfig& model) {
  const auto [type, name] = class_of(model);
  return {{"model_type", type},
          {"architectures", {name}},
          {"num_hidden_layers", model.layers},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.ffn},
          {"num_attention_heads", model.q_heads},
          {"num_key_value_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"vocab_size", model.vocab},
          {"rope_theta", model.rope_theta},
          {"rms_norm_eps", model.norm_epsilon},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", model.tied()}};
}

std::string hugging_face_name(const std::string& parameter) {
  std::string layer, rest = parameter;
  if (const std::string prefix = "layers."; parameter.starts_with(prefix)) {
    const size_t end = parameter.find('.', prefix.size()) + 1;
    layer = "model." + parameter.substr(0, end);
    rest = parameter.substr(end);
  }
  for (const auto& [ours, theirs] : kNames)
    if (rest.starts_with(ours)) return layer + theirs + rest.substr(std::string(ours).size());
  throw std::logic_error(parameter + " has no name in Hugging Face's models");
}

}  // namespace stp
