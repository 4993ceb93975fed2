#include "stp/model/config.h"

#include <nlohmann/json.hpp>

#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/model/hugging_face.h"
#include "stp/model/parameters.h"

namespace stp {

double ModelConfig::parameters_of(Unit unit) const {
  if (unit == Unit::head || unit == Unit::embedding) return vocabulary_parameters();
  int64_t elements = 0;
  for (const Parameter& each : unit_parameters(*this, unit)) elements += each.local_rows(1) * each.columns(1);
  return static_cast<double>(elements);
}

double ModelConfig::layer_parameters() const { return parameters_of(Unit::attn) + parameters_of(Unit::mlp); }

ModelConfig ModelConfig::encoder() const {
  ModelConfig config{};
  config.family = Family::vit;
  config.name = name + "'s vision encoder";
  config.layers = vision.layers;
  config.hidden = vision.hidden;
  config.ffn = vision.ffn;
  config.q_heads = config.kv_heads = vision.heads;
  config.head_dim = has_vision() ? vision.hidden / vision.heads : 0;
  config.rope_theta = 1e4;  // Qwen2-VL's
  return config;
}

double ModelConfig::vision_parameters() const {
  const double layer = parameters_of(Unit::vision_attn) + parameters_of(Unit::vision_mlp);
  return parameters_of(Unit::patches) + vision.layers * layer + parameters_of(Unit::merger);
}

double ModelConfig::parameters() const {
  const double last_norm = norm() == Norm::layer ? 2 : 1;
  return vision_parameters() + layers * layer_parameters() + (tied() ? 1 : 2) * vocabulary_parameters() +
         last_norm * hidden + position_parameters();
}

namespace {

VisionConfig read_vision(JsonInput input) {
  VisionConfig vision;
  vision.layers = input.integer("depth", 1, 10000);
  vision.hidden = input.integer("embed_dim", 1, 1 << 20);
  vision.heads = input.integer("num_heads", 1, 1 << 14);
  vision.ffn = vision.hidden * input.integer_or("mlp_ratio", 4, 1, 64);
  input.done();
  return vision;
}

ModelVariant read_variant(JsonInput& input) {
  ModelVariant variant;
  const auto choice = [&]<typename Choice>(const char* key, std::optional<Choice>& to,
                                           std::initializer_list<std::pair<const char*, Choice>> choices) {
    if (!input.has(key)) return;
    const std::string word = input.string(key);
    for (const auto& [name, value] : choices)
      if (word == name) to = value;
    if (!to)
      throw input.error(key, "\"" + word + "\" is not a choice",
                        "write one of " + joined(choices, [](const auto& each) { return each.first; }));
  };
  choice("norm", variant.norm,
         {{"rms", Norm::rms}, {"layer", Norm::layer}, {"layer-without-bias", Norm::layer_without_bias}});
  choice("activation", variant.activation,
         {{"swiglu", Activation::swiglu},
          {"gelu", Activation::gelu},
          {"gelu-tanh", Activation::gelu_tanh},
          {"squared-relu", Activation::squared_relu}});
  choice("biases", variant.biases, {{"none", Biases::none}, {"qkv", Biases::qkv}, {"all", Biases::all}});
  if (input.has("tied")) variant.tied = input.boolean_or("tied", false);
  variant.rotary_share = input.number_or("partial_rotary_factor", 1, 0, 1);
  variant.query_key_norm = input.boolean_or("query_key_norm", false);
  variant.dropout = input.number_or("dropout", 0, 0, 1);
  return variant;
}

}  // namespace

ModelConfig read_model(const std::string& path) { return read_model(read_json_file(path), path); }

ModelConfig read_model(const nlohmann::json& content, const std::string& file) {
  if (is_hugging_face(content)) return read_model(*import_hugging_face(content, file).content, file);
  refuse_other_kind(content, file, "a model");
  JsonInput input(content, file);
  ModelConfig model{};
  const std::string type = input.string_or("model_type", "qwen2");
  if (type != "qwen2" && type != "megatron-gpt")
    throw input.error(
        "model_type", "\"" + type + "\" is not supported",
        "use qwen2 (RMSNorm, rotary grouped-query attention, gated MLP; for Llama and Mistral with biases "
        "\"none\") or megatron-gpt (LayerNorm, learned positions, MLP of two matrices with GELU)");
  input.collect_missing();
  model.name = input.string("name");
  if (input.value("source") == nlohmann::json(""))
    throw input.error("source", "is empty", "say where the values come from");
  model.family = type == "qwen2" ? Family::qwen2 : Family::gpt;
  if (model.family == Family::gpt) model.positions = input.integer("max_position_embeddings", 1, 1 << 24);
  model.vocab_multiple = input.integer_or("make_vocab_size_divisible_by", 0, 1, 1 << 10);
  model.layers = input.integer("num_hidden_layers", 1, 10000);
  model.hidden = input.integer("hidden_size", 1, 1 << 20);
  model.ffn = input.integer("intermediate_size", 1, 1 << 22);
  model.q_heads = input.integer("num_attention_heads", 1, 1 << 14);
  model.kv_heads = input.integer_or("num_key_value_heads", model.q_heads, 1, 1 << 14);
  model.head_dim = input.integer_or("head_dim", model.hidden / model.q_heads, 1, 1 << 12);
  model.vocab = input.integer("vocab_size", 1, 1 << 24);
  input.integer_or("sliding_window", 0, 1);  // for a note: attention here is to all tokens
  model.rope_theta = input.number_or("rope_theta", model.rope_theta, 1, 1e12);
  const bool gpt = model.family == Family::gpt;
  model.norm_epsilon = input.number_or(gpt ? "layer_norm_epsilon" : "rms_norm_eps", gpt ? 1e-5 : 1e-6, 0, 1);
  model.variant = read_variant(input);
  const bool has_vision = input.has("vision_config");
  if (has_vision) model.vision = read_vision(input.object("vision_config"));
  input.done();
  if (has_vision && model.vision.hidden % model.vision.heads != 0)
    throw input.error("vision_config.num_heads",
                      "does not divide embed_dim " + std::to_string(model.vision.hidden), "use a divisor");
  if (has_vision && model.family != Family::qwen2)
    throw input.error("vision_config", "is of a " + type + ", which has no vision encoder",
                      "use model_type qwen2, or remove it");
  if (!input.has("head_dim") && model.hidden % model.q_heads != 0)
    throw input.error("num_attention_heads", "does not divide hidden_size " + std::to_string(model.hidden),
                      "use a divisor, or give head_dim");
  if (model.q_heads % model.kv_heads != 0)
    throw input.error("num_key_value_heads", "does not divide num_attention_heads", "use a divisor");
  return model;
}

ModelConfig padded(ModelConfig model, int tp) {
  if (const int multiple = model.vocab_multiple * tp; multiple > 0)
    model.vocab = (model.vocab + multiple - 1) / multiple * multiple;
  return model;
}

ModelConfig stand_in(const ModelConfig& like, int layers, int ranks) {
  ModelConfig model{};
  model.name = "stand-in";
  model.layers = layers;
  model.q_heads = model.kv_heads = 2 * ranks;
  model.head_dim = 8;
  model.hidden = model.ffn = model.vocab = model.q_heads * model.head_dim;
  if (like.has_vision()) model.vision = {like.vision.layers, model.hidden, model.q_heads, model.ffn};
  return model;
}

double model_flops(const ModelConfig& model, int seq, int vision_tokens) {
  const double L = model.layers, h = model.hidden, q = double{1} * model.head_dim * model.q_heads;
  const double per_token = 6 * (L * (2 * h * q + 2 * h * model.head_dim * model.kv_heads +
                                     (model.gated() ? 3 : 2) * h * model.ffn) +
                                h * model.vocab) +
                           6 * L * q * seq;
  if (!model.has_vision()) return per_token * seq;
  const double d = model.vision.hidden, merged = kTokensMerged * d;
  const double of_vision_token =
      6 * (model.vision.layers * (4 * d * d + 2 * d * model.vision.ffn) + kPatchElements * d) +
      12 * model.vision.layers * d * vision_tokens + 6 * merged * (merged + h) / kTokensMerged;
  return per_token * seq + of_vision_token * vision_tokens;
}

double model_flops_paper(const ModelConfig& model, int seq) {
  const double L = model.layers, h = model.hidden;
  const double per_token =
      6 * (L * (2 * h * h + 2 * h * 128 * (model.q_heads / 8.0) + 3 * h * model.ffn) + h * model.vocab) +
      24 * L * h * seq;
  return per_token * seq;
}

}  // namespace stp
