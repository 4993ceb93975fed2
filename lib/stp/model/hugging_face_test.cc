// Imported models against the parameters that their authors publish.
#include "stp/model/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "stp/model/config.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

json rotary(const std::string& type, int layers, int hidden, int ffn, int heads, int kv_heads, int vocab) {
  return {{"model_type", type},       {"num_hidden_layers", layers},  {"hidden_size", hidden},
          {"intermediate_size", ffn}, {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
          {"vocab_size", vocab},      {"tie_word_embeddings", false}, {"rms_norm_eps", 1e-5},
          {"bos_token_id", 1},        {"torch_dtype", "bfloat16"},    {"hidden_act", "silu"},
          {"attention_dropout", 0.0}};
}

const json kLlama = rotary("llama", 32, 4096, 11008, 32, 32, 32000);
const json kMistral = rotary("mistral", 32, 4096, 14336, 32, 8, 32000);
const json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 12},
                    {"n_embd", 768},        {"n_inner", nullptr},
                    {"n_head", 12},         {"vocab_size", 50257},
                    {"n_ctx", 1024},        {"n_positions", 1024},
                    {"attn_pdrop", 0.1},    {"activation_function", "gelu_new"}};
const json kNeoX = {
    {"model_type", "gpt_neox"},        {"num_hidden_layers", 44},   {"hidden_size", 6144},
    {"intermediate_size", 24576},      {"num_attention_heads", 64}, {"vocab_size", 50432},
    {"max_position_embeddings", 2048}, {"rotary_pct", 0.25},        {"use_parallel_residual", false}};

json with(json config, const json& fields) {
  config.update(fields);
  return config;
}

ImportedModel imported(const json& config) { return import_hugging_face(config, "there/config.json"); }

struct Known {
  const char* name;
  json config;
  double parameters;  // published
};

TEST(HuggingFace, ModelsHaveTheirPublishedParameters) {
  const Known models[] = {
      {"Llama-2-7B", kLlama, 6738415616},
      {"Llama-3-8B", rotary("llama", 32, 4096, 14336, 32, 8, 128256), 8030261248},
      {"Llama-3-70B", rotary("llama", 80, 8192, 28672, 64, 8, 128256), 70553706496},
      {"Llama-3.2-1B",  // its head is the embedding's matrix
       with(rotary("llama", 16, 2048, 8192, 32, 8, 128256),
            {{"head_dim", 64}, {"tie_word_embeddings", true}}),
       1235814400},
      {"Mistral-7B-v0.1", with(kMistral, {{"sliding_window", 4096}}), 7241732096},
      {"Qwen2-7B", rotary("qwen2", 28, 3584, 18944, 28, 4, 152064), 7615616512},
      {"Qwen3-8B",  // norms of queries and keys, no biases
       with(rotary("qwen3", 36, 4096, 12288, 32, 8, 151936), {{"head_dim", 128}}), 8190735360},
      {"GPT-2", kGpt2, 124439808},
      {"GPT-NeoX-20B", kNeoX, 20554567680},  // a head of its own, and rotary embedding
  };
  for (const auto& [name, config, parameters] : models)
    EXPECT_EQ(read_model(*imported(config).content, name).parameters(), parameters) << name;
}

TEST(HuggingFace, BiasesAreTheModels) {
  const auto biases = [](bool attention, bool mlp) {
    const ImportedModel made = imported(with(kLlama, {{"attention_bias", attention}, {"mlp_bias", mlp}}));
    return std::pair(read_model(*made.content, "").biases(), made.note());
  };
  EXPECT_EQ(biases(false, false), std::pair(Biases::none, std::string()));
  EXPECT_EQ(biases(true, true), std::pair(Biases::all, std::string()));
  EXPECT_EQ(biases(true, false),
            std::pair(Biases::qkv,
                      std::string("read as a qwen2, without attention_bias (of the output projection)")));
  EXPECT_EQ(biases(false, true),
            std::pair(Biases::none, std::string("read as a qwen2, without mlp_bias (alone)")));
}

TEST(HuggingFace, BiasesThatOursLacksAreListedAsLeftOut) {
  const auto listed = [](bool attention, bool mlp, const char* key) {
    const ImportedModel made = imported(with(kLlama, {{"attention_bias", attention}, {"mlp_bias", mlp}}));
    const auto among = [&](const auto& fields) {
      return std::ranges::any_of(fields, [&](const auto& field) { return field.name == key; });
    };
    return std::pair(among(made.taken), among(made.left_out));
  };
  EXPECT_EQ(listed(true, true, "mlp_bias true"), std::pair(true, false));
  EXPECT_EQ(listed(false, true, "mlp_bias true"), std::pair(false, true));
  EXPECT_EQ(listed(true, false, "attention_bias of the output projection"), std::pair(false, true));
}

TEST(HuggingFace, EveryFieldIsTakenOrLeftOutWithAReason) {
  const json llama =
      with(kLlama, {{"attention_bias", false}, {"rope_scaling", nullptr}, {"use_cache", true}});
  for (const json& config :
       {llama, with(kMistral, {{"sliding_window", nullptr}}), kGpt2, with(kNeoX, {{"surprise", 7}})}) {
    const ImportedModel made = imported(config);
    std::string all = "\nmodel_type ";
    for (const auto* fields : {&made.taken, &made.left_out})
      for (const auto& [name, what] : *fields) {
        EXPECT_NE(what, "") << name;
        all += "\n" + name + " ";
      }
    for (const auto& item : config.items()) EXPECT_THAT(all, HasSubstr("\n" + item.key() + " "));
  }
}

TEST(HuggingFace, IsReadWhereAModelFileIs) {
  const ModelConfig model =
      read_model(with(kLlama, {{"_name_or_path", "meta-llama/Llama-2-7b-hf"}}), "config.json");
  EXPECT_EQ(model.name, "Llama-2-7b-hf");
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_EQ(model.rope_theta, 1e4);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(read_model(kLlama, "there/config.json").name, "there");
  EXPECT_EQ(read_model(with(kLlama, {{"_name_or_path", "."}}), "there/config.json").name, "there");
  const json nested = with(kLlama, {{"rope_parameters", {{"rope_theta", 5e5}}}});
  EXPECT_EQ(read_model(nested, "").rope_theta, 5e5);
  const ModelConfig neox = read_model(with(kNeoX, {{"rotary_emb_base", 5e5}}), "");
  EXPECT_EQ(std::tuple(neox.rotary_dim(), neox.rope_theta, neox.norm_epsilon), std::tuple(24, 5e5, 1e-5));
  EXPECT_EQ(read_model(kLlama, "there/small.json").name, "small");
  json by_architecture = kLlama;
  by_architecture.erase("model_type");
  by_architecture["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(read_model(by_architecture, "").layers, 32);
  const json ours = with(kLlama, {{"name", "mine"}, {"source", "me"}});
  EXPECT_THAT(refusal([&] { read_model(ours, "f"); }),
              StartsWith("f: model_type: \"llama\" is not supported"));
}

TEST(HuggingFace, SlidingWindowsCountWhereTheyAreUsed) {
  const auto window = [](const json& config, const json& fields) {
    return imported(with(config, fields)).window;
  };
  const json qwen = rotary("qwen2", 28, 3584, 18944, 28, 4, 152064);
  EXPECT_EQ(window(kMistral, {{"sliding_window", 4096}}), 4096);
  EXPECT_EQ(window(kMistral, {{"sliding_window", nullptr}}), 0);
  const json some = {{"sliding_window", 4096}, {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_EQ(window(kMistral, some), 4096);
  EXPECT_EQ(window(qwen, {{"sliding_window", 4096}, {"use_sliding_window", false}}), 0);
  const json used = {{"sliding_window", 4096}, {"use_sliding_window", true}, {"max_window_layers", 28}};
  EXPECT_EQ(window(qwen, used), 0);
  EXPECT_EQ(window(qwen, with(used, {{"max_window_layers", 14}})), 4096);
  EXPECT_EQ(window(qwen, with(used, {{"layer_types", {"full_attention"}}})), 0);
}

TEST(HuggingFace, WhatChangesTheWorkIsRefused) {
  const auto refuses = [](const json& base, const json& fields, const std::string& field,
                          const std::string& words) {
    EXPECT_THAT(refusal([&] { imported(with(base, fields)); }),
                AllOf(StartsWith("there/config.json: " + field + ": "), HasSubstr(words), HasSubstr("; ")));
  };
  refuses(kMistral, {{"model_type", "mixtral"}, {"num_local_experts", 8}}, "num_local_experts", "dense");
  refuses(kLlama, {{"model_type", "gemma2"}}, "model_type", "llama, mistral, qwen2, qwen3, gpt2, gpt_neox");
  refuses(kLlama, {{"vision_config", {{"depth", 2}}}}, "vision_config", "more than text");
  refuses(kLlama, {{"quantization_config", {{"bits", 4}}}}, "quantization_config", "quantized");
  refuses(kLlama, {{"architectures", {"LlamaForSequenceClassification"}}}, "architectures",
          "not over the vocabulary");
  refuses(kLlama, {{"architectures", {"LlamaForTokenClassification"}}}, "architectures", "in a copy");
  refuses(kGpt2, {{"add_cross_attention", true}}, "add_cross_attention", "decoder-only");
  refuses(kNeoX, {{"use_parallel_residual", true}}, "use_parallel_residual", "write false");
  refuses(kNeoX, {{"use_parallel_residual", nullptr}}, "use_parallel_residual", "default");
  refuses(kLlama, {{"layer_types", {"linear_attention"}}}, "layer_types", "linear_attention");
  refuses(kLlama, {{"hidden_size", nullptr}}, "hidden_size", "missing");
  refuses(rotary("qwen3", 36, 4096, 12288, 32, 8, 151936), json::object(), "head_dim", "missing");
  refuses(kLlama, {{"hidden_size", "4096"}}, "hidden_size", "whole number");
  EXPECT_EQ(refusal([] {
              imported(with(kLlama, {{"num_local_experts", 1}, {"vision_config", json::object()}}));
            }),
            "");
}

}  // namespace
}  // namespace stp
