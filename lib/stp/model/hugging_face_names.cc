#include "stp/model/hugging_face_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "stp/base/error.h"

namespace stp {
namespace {

struct Name {
  const char *ours, *theirs;
};
constexpr Name kLlamaNames[] = {
    {"embedding.weight", "model.embed_tokens.weight"},
    {"head.norm.gain", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
    {"attn.norm.gain", "input_layernorm.weight"},
    {"attn.q.", "self_attn.q_proj."},
    {"attn.k.", "self_attn.k_proj."},
    {"attn.v.", "self_attn.v_proj."},
    {"attn.q_norm.gain", "self_attn.q_norm.weight"},
    {"attn.k_norm.gain", "self_attn.k_norm.weight"},
    {"attn.projection.", "self_attn.o_proj."},
    {"mlp.norm.gain", "post_attention_layernorm.weight"},
    {"mlp.gate.", "mlp.gate_proj."},
    {"mlp.up.", "mlp.up_proj."},
    {"mlp.down.", "mlp.down_proj."},
};
constexpr Name kGpt2Names[] = {
    {"embedding.weight", "transformer.wte.weight"},
    {"embedding.positions.weight", "transformer.wpe.weight"},
    {"head.norm.gain", "transformer.ln_f.weight"},
    {"head.norm.bias", "transformer.ln_f.bias"},
    {"head.weight", "lm_head.weight"},
    {"attn.norm.gain", "ln_1.weight"},
    {"attn.norm.bias", "ln_1.bias"},
    {"attn.q.", "attn.c_attn."},
    {"attn.k.", "attn.c_attn."},
    {"attn.v.", "attn.c_attn."},
    {"attn.projection.", "attn.c_proj."},
    {"mlp.norm.gain", "ln_2.weight"},
    {"mlp.norm.bias", "ln_2.bias"},
    {"mlp.fc1.", "mlp.c_fc."},
    {"mlp.fc2.", "mlp.c_proj."},
};

// A class of transformers, and the models that it has beside those of its `family`: with this norm, gated or
// not, these biases and this choice of norms of q and k.
struct Class {
  const char *type, *name;
  Family family;
  Norm norm;
  bool gated, query_key_norm;
  Biases biases;
  std::span<const Name> names;
  const char* layer;
};
constexpr Class kClasses[] = {{"llama", "LlamaForCausalLM", Family::qwen2, Norm::rms, true, false,
                               Biases::none, kLlamaNames, "model.layers."},
                              {"qwen2", "Qwen2ForCausalLM", Family::qwen2, Norm::rms, true, false,
                               Biases::qkv, kLlamaNames, "model.layers."},
                              {"qwen3", "Qwen3ForCausalLM", Family::qwen2, Norm::rms, true, true,
                               Biases::none, kLlamaNames, "model.layers."},
                              {"gpt2", "GPT2LMHeadModel", Family::gpt, Norm::layer, false, false, Biases::all,
                               kGpt2Names, "transformer.h."}};

const Class* class_of(const ModelConfig& model) {
  const auto fits = [&](const Class& each) {
    return model.family == each.family && model.norm() == each.norm && model.gated() == each.gated &&
           model.biases() == each.biases && model.variant.query_key_norm == each.query_key_norm;
  };
  const auto* const found = std::ranges::find_if(kClasses, fits);
  const bool gpt = model.family == Family::gpt;
  const bool same_heads = model.kv_heads == model.q_heads && model.head_dim * model.q_heads == model.hidden;
  if (found == std::end(kClasses) || model.has_vision() || (gpt && !same_heads) ||
      model.activation() == Activation::squared_relu || model.variant.rotary_share < 1)
    return nullptr;
  return found;
}

}  // namespace

void check_hugging_face_has(const ModelConfig& model, const std::string& field) {
  if (class_of(model) == nullptr)
    throw InputError(
        "", field,
        "is of a " + joined(kClasses, &Class::type) + ", but " + model.name + " is another kind of model",
        "use a model as one of these, or leave it out");
}

nlohmann::json hugging_face_config(const ModelConfig& model) {
  const Class& of = *class_of(model);
  nlohmann::json config{{"model_type", of.type},
                        {"architectures", {of.name}},
                        {"vocab_size", model.vocab},
                        {"tie_word_embeddings", model.tied()}};
  if (model.family == Family::gpt)
    config.update({{"n_layer", model.layers},
                   {"n_embd", model.hidden},
                   {"n_inner", model.ffn},
                   {"n_head", model.q_heads},
                   {"n_positions", model.positions},
                   {"layer_norm_epsilon", model.norm_epsilon},
                   {"activation_function", model.activation() == Activation::gelu ? "gelu" : "gelu_new"},
                   {"resid_pdrop", 0},
                   {"embd_pdrop", 0},
                   {"attn_pdrop", 0}});
  else
    config.update({{"num_hidden_layers", model.layers},
                   {"hidden_size", model.hidden},
                   {"intermediate_size", model.ffn},
                   {"num_attention_heads", model.q_heads},
                   {"num_key_value_heads", model.kv_heads},
                   {"head_dim", model.head_dim},
                   {"rope_theta", model.rope_theta},
                   {"rms_norm_eps", model.norm_epsilon},
                   {"hidden_act", "silu"}});
  return config;
}

HuggingFaceTensor hugging_face_tensor(const ModelConfig& model, const std::string& parameter,
                                      const ParameterPart& part) {
  const Class& of = *class_of(model);
  std::string layer, rest = parameter;
  if (const std::string prefix = "layers."; parameter.starts_with(prefix)) {
    const size_t end = parameter.find('.', prefix.size()) + 1;
    layer = of.layer + parameter.substr(prefix.size(), end - prefix.size());
    rest = parameter.substr(end);
  }
  const auto found =
      std::ranges::find_if(of.names, [&](const Name& name) { return rest.starts_with(name.ours); });
  if (found == of.names.end())
    throw std::logic_error(parameter + " has no name in Hugging Face's " + of.type);
  HuggingFaceTensor tensor{layer + found->theirs + rest.substr(std::string(found->ours).size()), part.rows,
                           part.columns};
  if (model.family != Family::gpt || layer.empty()) return tensor;
  tensor.transposed = part.columns > 1;
  if (const size_t place = std::string("qkv").find(rest[5]); rest[6] == '.' && place != std::string::npos) {
    tensor.first_row = static_cast<int64_t>(place) * part.rows;
    tensor.rows = 3 * part.rows;
  }
  return tensor;
}

}  // namespace stp
