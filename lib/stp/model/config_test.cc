// Configurations: parameters, their files, and the FLOPs of a sample, against the paper's figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "stp/base/json_input.h"
#include "stp/model/config.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ModelConfig, HasThePaperModelsParameters) {
  EXPECT_NEAR(model("llm-12.1b").parameters() / 1e9, 12.1745, 5e-5);
  EXPECT_NEAR(model("llm-26.3b").parameters() / 1e9, 26.3224, 5e-5);
}

TEST(ModelConfig, CountsEveryMatrixBiasAndNormOnce) {
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};  // q 8 wide, k and v 4
  EXPECT_EQ(tiny.layer_parameters(), 8 * (8 + 4 + 4) + (8 + 4 + 4) + 8 * 8 + 3 * 8 * 20 + 2 * 8);
  EXPECT_EQ(tiny.vocabulary_parameters(), 400);
  EXPECT_EQ(tiny.parameters(), 3 * tiny.layer_parameters() + 2 * 400 + 8);
}

TEST(ModelConfig, OfGptCountsItsBiasesNormsPositionsAndTheTiedEmbeddingOnce) {
  const ModelConfig tiny{"tiny", 3, 8, 32, 4, 4, 2, 50, Family::gpt, 10};
  EXPECT_EQ(tiny.layer_parameters(), 12 * 64 + 13 * 8);  // the literature's 12h² + 13h
  EXPECT_EQ(tiny.parameters(), 3 * tiny.layer_parameters() + 50 * 8 + 10 * 8 + 2 * 8);
  for (const auto& [name, billions] :
       {std::pair{"gpt-22b", 22.07}, {"gpt-175b", 174.6}, {"gpt-530b", 529.6}, {"gpt-1t", 1008.0}})
    EXPECT_NEAR(model(name).parameters() / 1e9, billions, billions * 1e-3) << name;
}

// The paper prints names that are rounded; these counts are the sums of all matrices, biases and norms.
TEST(ModelConfig, WithVisionHasThePaperModelsParameters) {
  for (const auto& [name, encoder, all] : {std::tuple{"mllm-14.9b", 1.7229, 14.959},
                                           {"mllm-28.8b", 5.6266, 28.800},
                                           {"mllm-30.3b", 5.6266, 30.375}}) {
    const ModelConfig config = model(name);
    EXPECT_NEAR(config.vision_parameters() / 1e9, encoder, 5e-5) << name;
    EXPECT_NEAR(config.parameters() / 1e9, all, 5e-4) << name;
    ModelConfig language = config;
    language.vision = {};
    EXPECT_EQ(language.vision_parameters(), 0);
    EXPECT_EQ(language.parameters() + config.vision_parameters(), config.parameters());
  }
  ModelConfig tiny{"tiny", 3, 6, 20, 2, 2, 3, 50};
  tiny.vision = {2, 8, 4, 32};
  EXPECT_EQ(tiny.encoder().layer_parameters(), 12 * 64 + 13 * 8);
  EXPECT_EQ(tiny.vision_parameters(),
            1176 * 8 + 2 * (12 * 64 + 13 * 8) + 2 * 8 + (32 * 32 + 32) + (32 * 6 + 6));
}

class ModelFile : public FolderTest {
 protected:
  ModelConfig read(const json& value) { return read_model(write("spoilt.json", value.dump())); }
  void refuses(const std::string& key, const json& value, const std::string& why) {
    json spoilt = good_;
    spoilt[key] = value;
    EXPECT_THAT(refusal([&] { read(spoilt); }), AllOf(StartsWith(path_ + ": " + key + ": "), HasSubstr(why)))
        << key << " = " << value;
  }

  const std::string path_ = folder_ + "/spoilt.json";
  const json good_ = read_json_file(STP_SOURCE_DIR "/models/llm-12.1b.json");
};

TEST_F(ModelFile, IsReadWithHuggingFacesNamesAndDefaults) {
  const ModelConfig read_back = read(good_);
  EXPECT_EQ(read_back.layers, 30);
  EXPECT_EQ(read_back.hidden, 5120);
  EXPECT_EQ(read_back.ffn, 18944);
  EXPECT_EQ(read_back.q_heads, 40);
  EXPECT_EQ(read_back.kv_heads, 8);
  EXPECT_EQ(read_back.head_dim, 128);
  EXPECT_EQ(read_back.vocab, 152064);
  json multi_head = good_;
  multi_head.erase("num_key_value_heads");
  EXPECT_EQ(read(multi_head).kv_heads, 40);
}

TEST_F(ModelFile, MayPadItsVocabulary) {
  json gpt = read_json_file(STP_SOURCE_DIR "/models/gpt-175b.json");
  gpt["vocab_size"] = 50257;
  EXPECT_EQ(padded(read(gpt), 8).vocab, 50257);
  gpt["make_vocab_size_divisible_by"] = 128;
  EXPECT_EQ(read(gpt).vocab, 50257);
  for (const auto& [tp, vocab] : {std::pair(1, 50304), {2, 50432}, {4, 50688}, {8, 51200}})
    EXPECT_EQ(padded(read(gpt), tp).vocab, vocab) << tp;
  json other = good_;
  other["make_vocab_size_divisible_by"] = 100000;
  EXPECT_THAT(refusal([&] { read(other); }), HasSubstr("make_vocab_size_divisible_by: "));
  other["make_vocab_size_divisible_by"] = 1000;
  EXPECT_EQ(padded(read(other), 2).vocab, 154000);
}

TEST_F(ModelFile, MayDifferFromItsFamily) {
  EXPECT_EQ(read(good_).variant, ModelVariant{});
  json other = good_;
  other.update({{"norm", "layer-without-bias"},
                {"activation", "squared-relu"},
                {"biases", "none"},
                {"tied", true},
                {"query_key_norm", true},
                {"dropout", 0.1},
                {"partial_rotary_factor", 0.5}});
  const ModelConfig read_back = read(other);
  EXPECT_EQ(read_back.norm(), Norm::layer_without_bias);
  EXPECT_EQ(read_back.activation(), Activation::squared_relu);
  EXPECT_EQ(read_back.biases(), Biases::none);
  EXPECT_FALSE(read_back.gated());
  EXPECT_TRUE(read_back.tied());
  for (const char* field : {"norm", "activation", "biases"}) {
    json wrong = good_;
    wrong[field] = "other";
    EXPECT_THAT(refusal([&] { read(wrong); }), HasSubstr(std::string(field) + ": \"other\" is not a choice"));
  }
}

TEST_F(ModelFile, MayHaveAVisionEncoder) {
  EXPECT_FALSE(read(good_).has_vision());
  json with = good_;
  with["vision_config"] = {{"depth", 32}, {"embed_dim", 2048}, {"num_heads", 16}};
  const VisionConfig vision = read(with).vision;
  EXPECT_EQ(std::tuple(vision.layers, vision.hidden, vision.heads, vision.ffn),
            std::tuple(32, 2048, 16, 8192));
  with["vision_config"]["mlp_ratio"] = 3;
  EXPECT_EQ(read(with).vision.ffn, 3 * 2048);
  const auto refuses_vision = [&](const json& value, const std::string& words) {
    json spoilt = good_;
    spoilt["vision_config"] = value;
    EXPECT_THAT(refusal([&] { read(spoilt); }), HasSubstr(words));
  };
  refuses_vision({{"depth", 32}}, "vision_config.embed_dim, vision_config.num_heads: are missing");
  refuses_vision({{"depth", 0}, {"embed_dim", 8}, {"num_heads", 2}},
                 "vision_config.depth: 0 is out of range");
  refuses_vision({{"depth", 1}, {"embed_dim", 9}, {"num_heads", 2}},
                 "vision_config.num_heads: does not divide");
  refuses_vision({{"depth", 1}, {"embed_dim", 8}, {"num_heads", 2}, {"heads", 2}}, "vision_config.heads");
  with["model_type"] = "megatron-gpt";
  with["max_position_embeddings"] = 10;
  EXPECT_THAT(refusal([&] { read(with); }), HasSubstr("vision_config: is of a megatron-gpt"));
}

TEST_F(ModelFile, IsRefusedByFileAndField) {
  for (const std::string key : {"name", "source", "num_hidden_layers", "hidden_size", "intermediate_size",
                                "num_attention_heads", "vocab_size"}) {
    json spoilt = good_;
    spoilt.erase(key);
    EXPECT_THAT(refusal([&] { read(spoilt); }), StartsWith(path_ + ": " + key + ": is missing"));
  }
  refuses("num_hidden_layers", 0, "out of range");
  refuses("hidden_size", 1e300, "whole number");
  refuses("num_key_value_heads", 7, "does not divide");
  refuses("model_type", "llama", "\"llama\" is not supported; use qwen2 (RMSNorm, rotary");
  refuses("source", "", "is empty");
  refuses("name", "a\u001b[31m", "has control characters");
  json odd = good_;
  odd["hidden_size"] = 4097;
  odd["num_attention_heads"] = 32;
  EXPECT_THAT(refusal([&] { read(odd); }),
              HasSubstr("num_attention_heads: does not divide hidden_size 4097"));
  odd["head_dim"] = 128;
  EXPECT_EQ(read(odd).head_dim, 128);
  json several = good_;
  several.erase("hidden_size");
  several.erase("name");
  EXPECT_EQ(refusal([&] { read(several); }), path_ + ": name, hidden_size: are missing; add them");
  json from_hub = good_;
  from_hub["torch_dtype"] = "bfloat16";
  from_hub["hidden_sizes"] = 5120;
  EXPECT_EQ(refusal([&] { read(from_hub); }),
            path_ +
                ": hidden_sizes, torch_dtype: are not known fields here; remove them; "
                "did you mean \"hidden_size\" for hidden_sizes?");
  from_hub.erase("hidden_sizes");
  EXPECT_EQ(refusal([&] { read(from_hub); }), path_ + ": torch_dtype: is not a known field here; remove it");
  json gpt = good_;
  gpt["model_type"] = "megatron-gpt";
  EXPECT_THAT(refusal([&] { read(gpt); }), StartsWith(path_ + ": max_position_embeddings: is missing"));
  gpt["max_position_embeddings"] = 2048;
  EXPECT_EQ(read(gpt).family, Family::gpt);
  refuses("max_position_embeddings", 2048, "not a known field");  // of rotary models
  refuses("num_layers", 30, "not a known field");
}

TEST(ModelFlops, OfASampleAreThoseThatThePapersTablesImply) {
  struct Row {
    const char* name;
    int seq;
    double paper, causal;            // TFLOP per sample
    double half_paper, half_causal;  // of their last digit
  };
  for (const Row& row : {Row{"llm-12.1b", 3072, 242.65, 218.74, .005, .005},
                         {"llm-12.1b", 4096, 339.00, 295.52, .005, .005},
                         {"llm-12.1b", 6144, 554.89, 454.87, .005, .005},
                         {"llm-12.1b", 8192, 801.70, 621.95, .005, .005},
                         {"llm-12.1b", 12288, 1388.1, 979.3, .05, .05},
                         {"llm-26.3b", 2048, 342.20, 318.34, .005, .005},
                         {"llm-26.3b", 4096, 750.78, 653.28, .005, .005}}) {
    EXPECT_NEAR(model_flops_paper(model(row.name), row.seq) / 1e12, row.paper, row.half_paper * 1.001)
        << row.name << row.seq;
    EXPECT_NEAR(model_flops(model(row.name), row.seq) / 1e12, row.causal, row.half_causal * 1.001)
        << row.name << row.seq;
  }
}

TEST(ModelFlops, OfThePaperTurnEveryThroughputOfTable6IntoItsMfuOfTable7) {
  const json published = read_json_file(STP_SOURCE_DIR "/results/published/stp-paper.json");
  const auto key = [](const json& row) {
    std::string text;
    for (const char* field : {"model", "seq", "microbatch_size", "tp", "pp", "microbatches", "schedule"})
      text += row.at(field).dump() + " ";
    return text;
  };
  std::map<std::string, double> mfu;
  for (const json& row : published.at("rows"))
    if (row.at("table") == "Table 7") mfu[key(row)] = row.at("mfu_paper");
  int pairs = 0;
  for (const json& row : published.at("rows")) {
    if (row.at("table") != "Table 6") continue;
    ASSERT_TRUE(mfu.contains(key(row))) << key(row);
    const int gpus = row.at("tp").get<int>() * row.at("pp").get<int>();
    const double flops = model_flops_paper(model(row.at("model")), row.at("seq"));
    const double ours = row.at("throughput_samples_per_s").get<double>() * flops / (gpus * 312e12);
    EXPECT_NEAR(100 * ours, 100 * mfu.at(key(row)), 0.04) << key(row);
    ++pairs;
  }
  EXPECT_EQ(pairs, 72);
}

}  // namespace
}  // namespace stp
