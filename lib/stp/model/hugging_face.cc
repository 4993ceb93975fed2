#include "stp/model/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr double kRopeTheta = 1e4, kRotaryShare = 0.25, kNeoxEpsilon = 1e-5;  // where config.json has none

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

// A family: our family of units, its names of fields, their defaults, and the names of its tensors, where
// runs make its checkpoints.
struct HuggingFace {
  const char *type, *architecture, *ours;
  const char *layers = "num_hidden_layers", *hidden = "hidden_size", *ffn = "intermediate_size",
             *heads = "num_attention_heads", *positions = "max_position_embeddings";
  bool attention_bias = false, qkv_bias_alone = false, query_key_norm = false, tied = false;
  std::span<const Name> names = {};
  const char* layer = "model.layers.";
};
constexpr HuggingFace kFamilies[] = {
    {.type = "llama", .architecture = "LlamaForCausalLM", .ours = "qwen2", .names = kLlamaNames},
    {.type = "mistral", .architecture = "MistralForCausalLM", .ours = "qwen2"},
    {.type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .ours = "qwen2",
     .qkv_bias_alone = true,
     .names = kLlamaNames},
    {.type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .ours = "qwen2",
     .query_key_norm = true,
     .names = kLlamaNames},
    {.type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .ours = "megatron-gpt",
     .layers = "n_layer",
     .hidden = "n_embd",
     .ffn = "n_inner",
     .heads = "n_head",
     .positions = "n_positions",
     .tied = true,
     .names = kGpt2Names,
     .layer = "transformer.h."},
    {.type = "gpt_neox", .architecture = "GPTNeoXForCausalLM", .ours = "qwen2", .attention_bias = true},
};

// Fields that change the work, if they are neither null, false, 0, 1 nor empty.
struct Unsupported {
  const char *field, *problem, *remedy;
};
constexpr const char* kExperts = "makes a mixture of experts, which the suite does not have";
constexpr const char* kModalities = "makes a model of more than text, which is not imported";
constexpr const char* kDecoder = "adds attention to an encoder, which the suite does not have";
constexpr const char* kUseDense = "use a dense model";
constexpr const char* kWriteVision =
    "import its language model alone; a vision encoder like Qwen2-VL's can be added by hand (docs/data.md)";
constexpr const char* kUseDecoder = "use a decoder-only model";
constexpr Unsupported kUnsupported[] = {
    {"num_local_experts", kExperts, kUseDense},
    {"num_experts", kExperts, kUseDense},
    {"n_routed_experts", kExperts, kUseDense},
    {"vision_config", kModalities, kWriteVision},
    {"audio_config", kModalities, kWriteVision},
    {"text_config", kModalities, kWriteVision},
    {"quantization_config",
     "changes the rates of GEMMs and the bytes of weights, which are those of bfloat16 here",
     "use the config.json of the model that was quantized, or remove the field"},
    {"is_encoder_decoder", kDecoder, kUseDecoder},
    {"add_cross_attention", kDecoder, kUseDecoder},
};

bool says_something(const json& value, double neutral = 1) {
  if (value.is_number()) return value > neutral;
  return value.is_boolean() ? value.get<bool>() : !value.empty();
}

// Of rope_parameters and rope_scaling: frequencies as rope_theta alone gives them.
bool is_plain_rotation(const json& value) {
  const auto is_default = [&](const char* key) { return !value.contains(key) || value[key] == "default"; };
  return value.is_object() && is_default("rope_type") && is_default("type");
}

// Fields of no interest: of files, of training's beginning, of output alone, or their family's defaults.
constexpr const char* kHarmless[] = {"_name_or_path",
                                     "architectures",
                                     "transformers_version",
                                     "initializer_range",
                                     "use_cache",
                                     "pretraining_tp",
                                     "auto_map",
                                     "torchscript",
                                     "max_window_layers",
                                     "layer_norm_eps",
                                     "layer_norm_epsilon",
                                     "scale_attn_weights",
                                     "n_ctx",
                                     "task_specific_params",
                                     "rope_theta"};

void refuse_unsupported(const JsonInput& input, const json& fields) {
  for (const json& each : fields.value("architectures", json::array()))
    if (const std::string word = each.is_string() ? each.get<std::string>() : "";
        word.find("For") != std::string::npos && !word.ends_with("ForCausalLM"))
      throw input.error("architectures", "has " + printable(word) + ", whose head is not over the vocabulary",
                        "remove the field in a copy, to price the head of a language model");
  for (const Unsupported& each : kUnsupported)
    if (fields.contains(each.field) && says_something(fields[each.field]))
      throw input.error(each.field, each.problem, each.remedy);
}

const HuggingFace& family_of(JsonInput& input) {
  const bool typed = input.has("model_type");
  const std::string key = typed ? "model_type" : "architectures";
  std::string word;
  if (typed) {
    word = input.string(key);
  } else if (const json& all = input.array(key); !all.empty() && all[0].is_string()) {
    word = all[0].get<std::string>();
  }
  for (const HuggingFace& family : kFamilies)
    if (word == (typed ? family.type : family.architecture)) return family;
  throw input.error(key, "\"" + printable(word) + "\" is not supported",
                    "import one of " + joined(kFamilies, &HuggingFace::type) +
                        ", or write a model file by hand (docs/data.md)");
}

std::string default_name(JsonInput& input) {
  namespace fs = std::filesystem;
  const auto last = [](const fs::path& path) {
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  std::string given = last(input.string_or("_name_or_path", ""));
  if (!given.empty() && given != ".") return given;
  std::error_code ignored;
  const fs::path path = fs::absolute(input.file(), ignored).lexically_normal();
  const std::string folder = last(path.parent_path());
  return path.stem() == "config" && !folder.empty() && folder != "/" ? folder : path.stem().string();
}

class Importer {
 public:
  Importer(JsonInput& input, const HuggingFace& family)
      : input_(input), family_(family), content_(*(made_.content = std::make_shared<json>())) {
    made_.type = family.type;
    content_["model_type"] = family.ours;
  }

  ImportedModel import(const std::string& name) {
    content_["name"] = name.empty() ? default_name(input_) : name;
    take_sizes();
    if (family_.type == std::string("gpt2"))
      import_gpt2();
    else if (family_.type == std::string("gpt_neox"))
      import_neox();
    else
      import_rotary();
    if (const bool tied = flag("tie_word_embeddings", family_.tied, "tied"); tied != family_.tied)
      content_["tied"] = tied;
    leave_out_others();
    const std::string note = made_.note();
    content_["source"] = "Hugging Face's config.json of a " + made_.type + (note.empty() ? "" : "; " + note);
    return std::move(made_);
  }

 private:
  // Takes the integer `key` as our field `ours`; missing, it is `fallback` (0: required).
  int take(const char* key, const char* ours, int most, int fallback = 0) {
    const bool given = fallback == 0 || input_.has(key);
    const int value = given ? input_.integer(key, 1, most) : fallback;
    taken_.insert(key);
    made_.taken.push_back({std::string(key) + (given ? " " : " (left out) ") + std::to_string(value), ours});
    content_[ours] = value;
    return value;
  }

  bool flag(const char* key, bool fallback, const char* ours) {
    taken_.insert(key);
    const bool value = input_.boolean_or(key, fallback);
    if (input_.has(key)) made_.taken.push_back({std::string(key) + (value ? " true" : " false"), ours});
    return value;
  }

  void leave_out(const std::string& key, const std::string& why) {
    taken_.insert(key);
    const json value = input_.has(key) ? input_.value(key) : json();
    made_.left_out.push_back({value.is_null() ? key : key + " " + json_text(value), why});
  }

  // Leaves out what a user may miss, but for numbers up to `neutral`.
  void ignore(const std::string& key, const std::string& why, double neutral = 1) {
    const json value = input_.has(key) ? input_.value(key) : json();
    leave_out(key, why);
    if (says_something(value, neutral) && !is_plain_rotation(value))
      made_.ignored.push_back(key + " (" + why + ")");
  }

  // Our field, where `key` or the family says that the model is not as its family of units.
  void set(const std::string& key, const char* ours, const json& value) {
    taken_.insert(key);
    content_[ours] = value;
    made_.taken.push_back({key, std::string(ours) + " " + json_text(value)});
  }

  void take_sizes() {
    layers_ = take(family_.layers, "num_hidden_layers", 10000);
    const int hidden = take(family_.hidden, "hidden_size", 1 << 20);
    const bool four_times = family_.type == std::string("gpt2");
    take(family_.ffn, "intermediate_size", 1 << 22, four_times ? 4 * hidden : 0);
    take(family_.heads, "num_attention_heads", 1 << 14);
    take("vocab_size", "vocab_size", 1 << 24);
  }

  void import_rotary() {
    const bool grouped = input_.has("num_key_value_heads") || family_.type != std::string("llama");
    if (grouped) take("num_key_value_heads", "num_key_value_heads", 1 << 14);
    if (input_.has("head_dim") || family_.query_key_norm) take("head_dim", "head_dim", 1 << 12);
    take_rotation();
    note_window();
    if (!family_.qkv_bias_alone) set_biases(input_.boolean_or("mlp_bias", false));
    if (family_.query_key_norm) set(made_.type, "query_key_norm", true);
    if (input_.string_or("hidden_act", "silu") == "silu")
      leave_out_if("hidden_act", "our gated MLP has silu");
    else
      ignore("hidden_act", "a gated MLP is priced the same with any activation, and runs have silu");
    leave_out_if(family_.positions, "rotary embedding has no parameters");
  }

  // Ours has biases of q, k and v alone, or all.
  void set_biases(bool mlp) {
    const bool attention = flag("attention_bias", family_.attention_bias, "biases");
    set(made_.type, "biases", attention && mlp ? "all" : attention ? "qkv" : "none");
    if (attention || !mlp) flag("mlp_bias", mlp, "biases");
    if (attention == mlp) return;
    leave_out(attention ? "attention_bias of the output projection" : "mlp_bias",
              "ours are of q, k and v alone, or of all linear layers");
    made_.ignored.emplace_back(attention ? "attention_bias (of the output projection)" : "mlp_bias (alone)");
  }

  // For runs: angles and the norms' epsilon.
  void take_rotation(const std::string& base = "rope_theta", const std::string& epsilon = "rms_norm_eps") {
    double theta = kRopeTheta;
    if (input_.has(base))
      theta = input_.number(base, 1, 1e12);
    else if (input_.has("rope_parameters") && input_.object("rope_parameters").has("rope_theta"))
      theta = input_.object("rope_parameters").number("rope_theta", 1, 1e12);
    content_["rope_theta"] = theta;
    const char* given = input_.has(base) || input_.has("rope_parameters") ? " " : " (left out) ";
    made_.taken.push_back({base + (given + shown("%g", theta)), "rope_theta"});
    taken_.insert(base);
    if (!input_.has(epsilon)) return;
    content_["rms_norm_eps"] = input_.number(epsilon, 0, 1);
    made_.taken.push_back({epsilon + " " + json_text(content_["rms_norm_eps"]), "rms_norm_eps"});
    taken_.insert(epsilon);
  }

  void note_window() {
    bool used = family_.type == std::string("mistral") ||
                flag("use_sliding_window", false, "whether there is a window");
    const int first = input_.integer_or("max_window_layers", 0, 0);
    if (family_.qkv_bias_alone || family_.query_key_norm) used = used && first < layers_;
    if (input_.has("layer_types")) {
      const json& types = input_.array("layer_types");
      for (const json& type : types)
        if (type != "full_attention" && type != "sliding_attention")
          throw input_.error("layer_types", "has " + json_text(type) + ", which the suite does not have",
                             "use a model of full_attention alone");
      used = std::ranges::find(types, json("sliding_attention")) != types.end();
      leave_out("layer_types", used ? "some have sliding_attention" : "all have full_attention");
    }
    if (family_.type == std::string("llama")) used = false;
    const int window = input_.has("sliding_window") ? input_.integer("sliding_window", 1) : 0;
    if (window == 0) return;
    made_.window = used ? window : 0;
    if (used) content_["sliding_window"] = window;
    leave_out("sliding_window",
              used ? "ours attends to all: the same up to that seq, more work above" : "not used");
  }

  void import_gpt2() {
    take(family_.positions, "max_position_embeddings", 1 << 24);
    const double epsilon = input_.number_or("layer_norm_epsilon", 1e-5, 0, 1);
    set("layer_norm_epsilon", "layer_norm_epsilon", epsilon);
    take_gelu("activation_function", "gelu_new");
  }

  void take_gelu(const char* key, const char* fallback) {
    const std::string function = input_.string_or(key, fallback);
    const bool by_tanh = function == "gelu_new" || function == "gelu_pytorch_tanh" || function == "gelu_fast";
    set(key, "activation", by_tanh ? "gelu-tanh" : "gelu");
    if (!by_tanh && function != "gelu") ignore(key, "priced as GELU");
  }

  void import_neox() {
    if (flag("use_parallel_residual", true, "one sublayer after the other"))
      throw input_.error(
          "use_parallel_residual",
          "is true (its default): attention and MLP share one all-reduce, which the suite does not have",
          "write false in a copy, to price one after the other with two");
    set(made_.type, "norm", "layer");
    take_gelu("hidden_act", "gelu");
    set_biases(true);
    set("rotary_pct", "partial_rotary_factor", input_.number_or("rotary_pct", kRotaryShare, 0, 1));
    content_["rms_norm_eps"] = kNeoxEpsilon;
    take_rotation("rotary_emb_base", "layer_norm_eps");
    leave_out_if(family_.positions, "rotary embedding has no parameters");
  }

  void leave_out_if(const char* key, const char* why) {
    if (input_.has(key)) leave_out(key, why);
  }

  void leave_out_others() {
    for (const std::string& key : input_.keys()) {
      if (taken_.contains(key) || key == "model_type") continue;
      input_.ignore(key);
      const auto about = [&](const char* word) { return key.find(word) != std::string::npos; };
      if (about("token_id"))
        leave_out(key, "ids of tokens");
      else if (about("summary") || about("classifier") ||
               std::ranges::find(kHarmless, key) != std::end(kHarmless))
        leave_out(key, "changes no work");
      else if (about("drop"))
        ignore(key, "runs have no dropout; model.dropout prices its masks", 0);
      else if (about("dtype"))
        leave_out(key, "simulations are in bfloat16; runs have run.type");
      else if (about("rope") || about("rotary"))
        ignore(key, "changes angles, not work");
      else
        ignore(key, "not known to change the work");
    }
  }

  JsonInput& input_;
  const HuggingFace& family_;
  ImportedModel made_;
  json& content_;  // its
  std::set<std::string> taken_;
  int layers_ = 0;
};

// The family whose checkpoints are of such models; null: none.
const HuggingFace* class_of(const ModelConfig& model) {
  const bool gpt = model.family == Family::gpt;
  const bool same_heads = model.kv_heads == model.q_heads && model.head_dim * model.q_heads == model.hidden;
  if (model.has_vision() || (gpt && !same_heads) || model.norm() != (gpt ? Norm::layer : Norm::rms) ||
      model.activation() == Activation::squared_relu || model.gated() == gpt ||
      model.variant.rotary_share < 1)
    return nullptr;
  const auto fits = [&](const HuggingFace& each) {
    const Biases biases = gpt ? Biases::all : each.qkv_bias_alone ? Biases::qkv : Biases::none;
    return !each.names.empty() && (each.ours == std::string("megatron-gpt")) == gpt &&
           model.biases() == biases && model.variant.query_key_norm == each.query_key_norm;
  };
  const auto* const found = std::ranges::find_if(kFamilies, fits);
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace

std::string ImportedModel::note() const {
  std::vector<std::string> words;
  if (window > 0)
    words.push_back("which attends to all tokens, not to a window of " + std::to_string(window));
  if (!ignored.empty()) words.push_back("without " + joined(ignored));
  return words.empty() ? ""
                       : "read as a " + content->at("model_type").get<std::string>() + ", " + joined(words);
}

bool is_hugging_face(const json& content) {
  return content.is_object() && (content.contains("model_type") || content.contains("architectures")) &&
         !content.contains("name") && !content.contains("source");
}

ImportedModel import_hugging_face(const json& content, const std::string& file, const std::string& name) {
  if (!is_hugging_face(content))
    throw InputError(file, "",
                     "is not Hugging Face's config.json, which has a model_type, and no name or source",
                     "name a config.json; a file with name and source is a model file already");
  json fields = json::object();  // null means the same as left out
  for (const auto& [key, value] : content.items())
    if (!value.is_null()) fields[key] = value;
  JsonInput input(fields, file);
  refuse_unsupported(input, fields);
  const HuggingFace& family = family_of(input);
  ImportedModel made = Importer(input, family).import(name);
  for (const auto& [key, value] : content.items())
    if (value.is_null()) made.left_out.push_back({key, "is null"});
  return made;
}

void check_hugging_face_has(const ModelConfig& model, const std::string& field) {
  if (class_of(model) != nullptr) return;
  std::vector<std::string> types;
  for (const HuggingFace& each : kFamilies)
    if (!each.names.empty()) types.emplace_back(each.type);
  throw InputError("", field,
                   "is of a " + joined(types) + ", but " + model.name + " is another kind of model",
                   "use a model as one of these, or leave it out");
}

json hugging_face_config(const ModelConfig& model) {
  const HuggingFace& of = *class_of(model);
  json config{{"model_type", of.type},     {"architectures", {of.architecture}},
              {"vocab_size", model.vocab}, {"tie_word_embeddings", model.tied()},
              {of.layers, model.layers},   {of.hidden, model.hidden},
              {of.ffn, model.ffn},         {of.heads, model.q_heads}};
  if (model.family == Family::gpt)
    config.update({{of.positions, model.positions},
                   {"layer_norm_epsilon", model.norm_epsilon},
                   {"activation_function", model.activation() == Activation::gelu ? "gelu" : "gelu_new"},
                   {"resid_pdrop", 0},
                   {"embd_pdrop", 0},
                   {"attn_pdrop", 0}});
  else
    config.update({{"num_key_value_heads", model.kv_heads},
                   {"head_dim", model.head_dim},
                   {"rope_theta", model.rope_theta},
                   {"rms_norm_eps", model.norm_epsilon},
                   {"hidden_act", "silu"}});
  return config;
}

HuggingFaceTensor hugging_face_tensor(const ModelConfig& model, const std::string& parameter,
                                      const ParameterPart& part) {
  const HuggingFace& of = *class_of(model);
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
