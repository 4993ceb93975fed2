#include "stp/model/config.h"

#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {

double ModelConfig::layer_parameters() const {
  const double h = hidden, q = double{1} * q_heads * head_dim, kv = double{1} * kv_heads * head_dim;
  const double weights = h * (q + 2 * kv) + q * h + (gated() ? 3 : 2) * h * ffn;
  if (family == Family::gpt) return weights + (q + 2 * kv) + h + ffn + h + 4 * h;  // biases, two LayerNorms
  return weights + (q + 2 * kv) + 2 * h;                                           // QKV bias, two norms
}

double ModelConfig::parameters() const {
  if (family == Family::gpt)
    return layers * layer_parameters() + vocabulary_parameters() + (2.0 + positions) * hidden;
  return layers * layer_parameters() + 2 * vocabulary_parameters() + hidden;  // and the last norm
}

ModelConfig read_model(const std::string& path) { return read_model(read_json_file(path), path); }

ModelConfig read_model(const nlohmann::json& content, const std::string& file) {
  JsonInput input(content, file);
  ModelConfig model{};
  const std::string type = input.string_or("model_type", "qwen2");
  if (type != "qwen2" && type != "megatron-gpt")
    throw input.error(
        "model_type", "\"" + type + "\" is not supported",
        "use qwen2 (RMSNorm, rotary grouped-query attention, gated MLP; nearest to Llama and Mistral too, "
        "which lack its biases on q, k and v) or megatron-gpt (LayerNorm, learned positions, MLP of two "
        "matrices with GELU)");
  input.collect_missing();
  model.name = input.string("name");
  if (input.value("source") == nlohmann::json(""))
    throw input.error("source", "is empty", "say where the values come from");
  model.family = type == "qwen2" ? Family::qwen2 : Family::gpt;
  if (model.family == Family::gpt) model.positions = input.integer("max_position_embeddings", 1, 1 << 24);
  model.layers = input.integer("num_hidden_layers", 1, 10000);
  model.hidden = input.integer("hidden_size", 1, 1 << 20);
  model.ffn = input.integer("intermediate_size", 1, 1 << 22);
  model.q_heads = input.integer("num_attention_heads", 1, 1 << 14);
  model.kv_heads = input.integer_or("num_key_value_heads", model.q_heads, 1, 1 << 14);
  model.head_dim = input.integer_or("head_dim", model.hidden / model.q_heads, 1, 1 << 12);
  model.vocab = input.integer("vocab_size", 1, 1 << 24);
  model.rope_theta = input.number_or("rope_theta", model.rope_theta, 1, 1e12);
  model.norm_epsilon = input.number_or("rms_norm_eps", model.norm_epsilon, 0, 1);
  input.done();
  if (!input.has("head_dim") && model.hidden % model.q_heads != 0)
    throw input.error("num_attention_heads", "does not divide hidden_size " + std::to_string(model.hidden),
                      "use a divisor, or give head_dim");
  if (model.q_heads % model.kv_heads != 0)
    throw input.error("num_key_value_heads", "does not divide num_attention_heads", "use a divisor");
  return model;
}

double model_flops(const ModelConfig& model, int seq) {
  const double L = model.layers, h = model.hidden, q = double{1} * model.head_dim * model.q_heads;
  const double per_token = 6 * (L * (2 * h * q + 2 * h * model.head_dim * model.kv_heads +
                                     (model.gated() ? 3 : 2) * h * model.ffn) +
                                h * model.vocab) +
                           6 * L * q * seq;
  return per_token * seq;
}

double model_flops_paper(const ModelConfig& model, int seq) {
  const double L = model.layers, h = model.hidden;
  const double per_token =
      6 * (L * (2 * h * h + 2 * h * 128 * (model.q_heads / 8.0) + 3 * h * model.ffn) + h * model.vocab) +
      24 * L * h * seq;
  return per_token * seq;
}

}  // namespace stp
