// Parameters, FLOPs, partitions and the work of units, against the paper's figures and closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "stp/base/json_input.h"
#include "stp/model/buckets.h"
#include "stp/model/config.h"
#include "stp/model/offload.h"
#include "stp/model/parameters.h"
#include "stp/model/partition.h"
#include "stp/model/work.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::StartsWith;

ModelConfig model(const std::string& name) { return read_model(STP_SOURCE_DIR "/models/" + name + ".json"); }
const std::vector<std::string> kModels{"llm-12.1b", "llm-26.3b"};

// ---- configurations ----

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

class ModelFile : public testing::Test {
 protected:
  ModelFile() {
    std::string pattern = testing::TempDir() + "/modelXXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/spoilt.json";
  }
  ~ModelFile() override { std::filesystem::remove_all(folder_); }

  ModelConfig read(const json& value) {
    std::ofstream(path_) << value.dump();
    return read_model(path_);
  }
  void refuses(const std::string& key, const json& value, const std::string& why) {
    json spoilt = good_;
    spoilt[key] = value;
    EXPECT_THAT(refusal([&] { read(spoilt); }), AllOf(StartsWith(path_ + ": " + key + ": "), HasSubstr(why)))
        << key << " = " << value;
  }

  std::string folder_, path_;
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

// ---- FLOPs ----

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

// ---- partition ----

TEST(PaperPartition, IsThePapersForEveryModelAndDegree) {
  const auto uniform = [](int layers, int stages) {
    std::vector<int> chunks(stages, layers);
    chunks.back() -= 2;
    return chunks;
  };
  EXPECT_THAT(paper_partition(30, 4), ElementsAre(8, 8, 8, 6));
  EXPECT_THAT(paper_partition(30, 8), ElementsAre(4, 4, 4, 4, 4, 4, 4, 2));
  EXPECT_THAT(paper_partition(30, 16), ElementsAreArray(uniform(2, 16)));
  EXPECT_EQ(paper_partition(30, 16).back(), 0);  // the head alone
  EXPECT_THAT(paper_partition(46, 8), ElementsAreArray(uniform(6, 8)));
  EXPECT_THAT(paper_partition(46, 16), ElementsAreArray(uniform(3, 16)));
  // The language parts of the multimodal models, over the chunks not used by the vision part.
  EXPECT_THAT(paper_partition(33, 7), ElementsAre(5, 5, 5, 5, 5, 5, 3));
  EXPECT_THAT(paper_partition(40, 7), ElementsAre(6, 6, 6, 6, 6, 6, 4));
  EXPECT_THAT(paper_partition(43, 15), ElementsAreArray(uniform(3, 15)));
  EXPECT_THAT(paper_partition(5, 1), ElementsAre(5));
}

TEST(PaperPartition, KeepsEveryLayerOrRefuses) {
  int made = 0;
  for (int layers = 1; layers <= 64; ++layers) {
    for (int stages = 1; stages <= 80; ++stages) {
      std::vector<int> chunks;
      const std::string message = refusal([&] { chunks = paper_partition(layers, stages); });
      const bool possible = (layers + 2) % stages == 0 && (layers + 2) / stages >= 2;
      EXPECT_EQ(message.empty(), possible || stages == 1)
          << layers << " layers, " << stages << " stages: " << message;
      if (!message.empty()) {
        EXPECT_THAT(message, AllOf(StartsWith("parallel.pp: "), HasSubstr("; ")));
        continue;
      }
      ++made;
      ASSERT_EQ(chunks.size(), static_cast<size_t>(stages));
      EXPECT_EQ(std::accumulate(chunks.begin(), chunks.end(), 0), layers);
      for (int i = 0; i < stages; ++i)
        EXPECT_EQ(chunks[i], (layers + 2) / stages - (i + 1 == stages ? 2 : 0));
    }
  }
  EXPECT_GT(made, 100);
}

TEST(PaperPartition, RefusesWithTheReason) {
  EXPECT_THAT(refusal([] { paper_partition(33, 3); }),
              AllOf(HasSubstr("33 layers"), HasSubstr("3 virtual stages"), HasSubstr("layers_per_chunk")));
  EXPECT_THAT(refusal([] { paper_partition(30, 6); }), HasSubstr("do not divide"));
  EXPECT_THAT(refusal([] { paper_partition(30, 33); }), HasSubstr("more than the model's 30 layers"));
  EXPECT_THAT(refusal([] { paper_partition(6, 8); }), HasSubstr("negative number of layers"));
}

TEST(EvenPartition, GivesTheRemainderToTheFirstStages) {
  EXPECT_THAT(even_partition(30, 4), ElementsAre(8, 8, 7, 7));
  EXPECT_THAT(even_partition(32, 4), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(even_partition(5, 5), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(even_partition(5, 1), ElementsAre(5));
  EXPECT_THAT(refusal([] { even_partition(5, 6); }),
              AllOf(StartsWith("layers_per_chunk: "), HasSubstr("6 virtual stages"), HasSubstr("5 layers")));
}

// ---- work ----

double gemm_flops(const Work& work) {
  double sum = 0;
  for (const Gemm& gemm : work.gemms) sum += gemm.flops();
  return sum;
}

// Units with GEMMs: all but the embedding.
constexpr std::array kGemmUnits{Unit::attn, Unit::mlp, Unit::head};

// Every model, implementation and shape that the tests below use.
template <typename Check>
void for_each_shape(Check check) {
  for (const std::string& name : kModels)
    for (const auto implementation : {Implementation::megatron, Implementation::suite})
      for (const Shape& shape : {Shape{2048, 2, 1}, {3072, 2, 2}, {6144, 1, 4}, {8192, 1, 8}})
        check(model(name), implementation, shape);
}

TEST(Work, OfTheForwardsIsAThirdOfTheFormulasDenseFlopsExactly) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const auto forward = [&](Unit unit) {
      return gemm_flops(work(config, shape, implementation, unit, UnitPass::F));
    };
    const double all = config.layers * (forward(Unit::attn) + forward(Unit::mlp)) + forward(Unit::head);
    const double attention = 6.0 * config.layers * config.hidden * shape.seq * shape.seq;
    EXPECT_EQ(3 * all * shape.tp, (model_flops(config, shape.seq) - attention) * shape.microbatch_size);
  });
}

TEST(Work, OfTheAttentionIsCausalAndOnceAndAHalfMoreBackwardThanTheFormulaCounts) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const Work forward = work(config, shape, implementation, Unit::attn, UnitPass::F);
    const Work backward = work(config, shape, implementation, Unit::attn, UnitPass::I);
    // The formula: 6·h·s a token and layer, forward and twice that backward.
    EXPECT_EQ(forward.attention_forward_flops * shape.tp, 2.0 * config.hidden * shape.seq * shape.tokens());
    EXPECT_EQ(backward.attention_backward_flops, 2.5 * forward.attention_forward_flops);
    EXPECT_EQ(forward.attention_backward_flops, 0);
    EXPECT_EQ(backward.attention_forward_flops, 0);
    for (const UnitPass pass : kUnitPasses) {
      for (const Unit unit : kGemmUnits) {
        if (unit == Unit::attn && (pass == UnitPass::F || pass == UnitPass::I)) continue;
        const Work other = work(config, shape, implementation, unit, pass);
        EXPECT_EQ(other.attention_forward_flops + other.attention_backward_flops, 0) << to_string(unit, pass);
      }
    }
  });
}

TEST(Work, HasAsManyFlopsInFAsInIAsInBothPartsOfW) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto flops = [&](UnitPass pass) {
        return gemm_flops(work(config, shape, implementation, unit, pass));
      };
      EXPECT_GT(flops(UnitPass::F), 0);
      EXPECT_EQ(flops(UnitPass::F), flops(UnitPass::I)) << to_string(unit);
      EXPECT_EQ(flops(UnitPass::F), flops(UnitPass::W_early) + flops(UnitPass::W_late)) << to_string(unit);
    }
  });
}

TEST(Work, PutsTheRowParallelLinearsIntoTheEarlyWeightGradients) {
  const ModelConfig config = model("llm-12.1b");
  const Shape shape{6144, 1, 8};
  const auto flops = [&](Unit unit, UnitPass pass) {
    return gemm_flops(work(config, shape, Implementation::suite, unit, pass));
  };
  const double h = 5120, tokens = 6144;
  EXPECT_EQ(flops(Unit::attn, UnitPass::W_early), 2 * tokens * h * (h / 8));               // proj
  EXPECT_EQ(flops(Unit::attn, UnitPass::W_late), 2 * tokens * h * (h + 2 * 8 * 128) / 8);  // QKV
  EXPECT_EQ(flops(Unit::mlp, UnitPass::W_early), 2 * tokens * h * (18944.0 / 8));          // fc2
  EXPECT_EQ(flops(Unit::mlp, UnitPass::W_late), 2 * tokens * h * 2 * (18944.0 / 8));       // fc1
  EXPECT_EQ(flops(Unit::head, UnitPass::W_early), 0);
  EXPECT_EQ(flops(Unit::head, UnitPass::W_late), 2 * tokens * h * (152064.0 / 8));
}

TEST(Work, OfTheGradientsHasTheGemmsTransposed) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto gemms = [&](UnitPass pass) { return work(config, shape, implementation, unit, pass).gemms; };
      const std::vector<Gemm> forward = gemms(UnitPass::F), input = gemms(UnitPass::I);
      std::vector<Gemm> weights = gemms(UnitPass::W_late);  // of the first linear
      for (const Gemm& gemm : gemms(UnitPass::W_early)) weights.push_back(gemm);
      ASSERT_EQ(input.size(), forward.size());
      ASSERT_EQ(weights.size(), forward.size());
      for (size_t i = 0; i < forward.size(); ++i) {
        EXPECT_EQ(input[i].n, forward[i].k);                                  // as wide as the linear's input
        EXPECT_EQ(input[i].k, forward[i].n);                                  // summed over its outputs
        EXPECT_EQ(weights[i].m * weights[i].n, forward[i].n * forward[i].k);  // as many as there are weights
      }
    }
  });
}

TEST(Work, OfWReadsAndWritesAnFp32GradientPerWeightWhateverTheTokens) {
  for (const std::string& name : kModels) {
    const ModelConfig config = model(name);
    for (const auto implementation : {Implementation::megatron, Implementation::suite}) {
      const auto bytes = [&](const Shape& shape) {
        double sum = 0;
        for (const Unit unit : {Unit::attn, Unit::mlp})
          for (const UnitPass pass : {UnitPass::W_early, UnitPass::W_late})
            sum += work(config, shape, implementation, unit, pass).sharded_bytes;
        return sum;
      };
      const double h = config.hidden, q = config.q_heads * config.head_dim,
                   kv = config.kv_heads * config.head_dim;
      const double weights = h * (q + 2 * kv) + q * h + 3 * h * config.ffn;  // no bias, no norm
      EXPECT_DOUBLE_EQ(bytes({4096, 1, 8}), 8 * weights / 8);
      EXPECT_EQ(bytes({8192, 3, 8}), bytes({1024, 1, 8}));
    }
  }
}

TEST(Work, OfTheEmbeddingIsTrafficOfTokensAndOfAllItsWeightsUnfused) {
  const ModelConfig config = model("llm-12.1b");
  const auto of = [&](const Shape& shape, Implementation implementation, UnitPass pass) {
    const Work w = work(config, shape, implementation, Unit::embedding, pass);
    EXPECT_TRUE(w.gemms.empty());
    EXPECT_EQ(w.attention_forward_flops + w.attention_backward_flops + w.replicated_bytes, 0);
    return w.sharded_bytes;
  };
  const double hidden = 2 * 6144.0 * 5120, weights = 152064.0 * 5120;
  for (const int tp : {1, 4, 8}) {
    const Shape shape{6144, 1, tp}, twice{6144, 2, tp};
    EXPECT_EQ(of(shape, Implementation::megatron, UnitPass::F), 3 * hidden);  // every rank, whatever tp
    EXPECT_DOUBLE_EQ(of(shape, Implementation::megatron, UnitPass::W_late), 2 * hidden + 12 * weights / tp);
    EXPECT_DOUBLE_EQ(of(twice, Implementation::megatron, UnitPass::W_late), 4 * hidden + 12 * weights / tp);
    // Fused, nothing grows with the vocabulary.
    EXPECT_DOUBLE_EQ(of(twice, Implementation::suite, UnitPass::W_late),
                     2 * of(shape, Implementation::suite, UnitPass::W_late));
    EXPECT_LT(of(shape, Implementation::suite, UnitPass::W_late),
              of(shape, Implementation::megatron, UnitPass::W_late));
    for (const UnitPass none : {UnitPass::I, UnitPass::W_early})
      EXPECT_EQ(work(config, shape, Implementation::megatron, Unit::embedding, none).kernels, 0);
  }
  EXPECT_THAT(saved_tensors(config, {6144, 1, 4}, Implementation::megatron, Unit::embedding),
              testing::IsEmpty());
}

TEST(Work, IsDividedByTensorParallelismButForWhatEveryRankRepeats) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const int tp = shape.tp;
    for (const Unit unit : kGemmUnits) {
      for (const UnitPass pass : kUnitPasses) {
        shape.tp = tp;
        const Work divided = work(config, shape, implementation, unit, pass);
        shape.tp = 1;
        const Work whole = work(config, shape, implementation, unit, pass);
        EXPECT_DOUBLE_EQ(gemm_flops(divided) * tp, gemm_flops(whole));
        EXPECT_DOUBLE_EQ(divided.attention_forward_flops * tp, whole.attention_forward_flops);
        EXPECT_DOUBLE_EQ(divided.attention_backward_flops * tp, whole.attention_backward_flops);
        EXPECT_DOUBLE_EQ(divided.sharded_bytes * tp, whole.sharded_bytes);
        EXPECT_EQ(divided.replicated_bytes, whole.replicated_bytes);
        EXPECT_EQ(divided.kernels, whole.kernels);
        const bool weights = pass == UnitPass::W_early || pass == UnitPass::W_late;
        for (const Gemm& gemm : divided.gemms) EXPECT_EQ(weights ? gemm.k : gemm.m, shape.tokens());
      }
    }
  });
}

TEST(Work, OfARingsRanksIsThatOfTheWholeSequenceDividedEvenly) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const Work whole = work(config, shape, implementation, Unit::attn, UnitPass::F);
    shape.cp = 4;
    EXPECT_EQ(shape.tokens(), shape.seq * shape.microbatch_size / 4);
    EXPECT_EQ(kv_bytes(config, shape),
              2 * 2.0 * shape.tokens() * config.kv_heads * config.head_dim / shape.tp);
    const Work own = work(config, shape, implementation, Unit::attn, UnitPass::F);
    EXPECT_EQ(4 * gemm_flops(own), gemm_flops(whole));
    EXPECT_EQ(4 * own.attention_forward_flops, whole.attention_forward_flops);
    EXPECT_EQ(4 * own.replicated_bytes, whole.replicated_bytes);
    EXPECT_GT(4 * own.sharded_bytes, whole.sharded_bytes);  // results of steps are merged
  });
}

// All rows of a share of the heads are as much as a ring's steps, and nothing is merged; but the core's own
// output is kept beside that of the own rows.
TEST(Work, OfExchangedHeadsIsThatOfARing) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const Work whole = work(config, shape, implementation, Unit::attn, UnitPass::I);
    shape.cp = 4;
    const auto bytes = [&] {
      double sum = 0;
      for (const SavedTensor& each : saved_tensors(config, shape, implementation, Unit::attn))
        sum += each.bytes;
      return sum;
    };
    const double of_ring = bytes();
    shape.cp_method = CpMethod::all_to_all;
    const Work own = work(config, shape, implementation, Unit::attn, UnitPass::I);
    EXPECT_EQ(4 * own.attention_backward_flops, whole.attention_backward_flops);
    EXPECT_EQ(4 * own.sharded_bytes, whole.sharded_bytes);
    EXPECT_EQ(own.kernels, whole.kernels);
    EXPECT_EQ(bytes(), of_ring + attention_output_bytes(config, shape));
    const Work core = unit_part_work(config, shape, implementation, Unit::attn, UnitPass::I, UnitPart::core);
    EXPECT_EQ(core.attention_backward_flops, own.attention_backward_flops);
  });
}

TEST(Work, OfPartsAddsUpToTheUnits) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    shape.cp = 3;
    shape.seq = shape.seq / 6 * 6;
    for (const auto& [pass, set] : {std::pair{UnitPass::F, "none"},
                                    {UnitPass::I, "none"},
                                    {UnitPass::I, "selective"},
                                    {UnitPass::I, "attn+mlp+norm"}}) {
      for (const auto& [name, choice] : kRecomputes)
        if (name == std::string(set)) shape.recompute = choice;
      const Work whole = work(config, shape, implementation, Unit::attn, pass);
      Work sum;
      const auto add_part = [&](UnitPart part, int step, UnitPass of) {
        const Work w = unit_part_work(config, shape, implementation, Unit::attn, of, part, step);
        sum.gemms.insert(sum.gemms.end(), w.gemms.begin(), w.gemms.end());
        sum.attention_forward_flops += w.attention_forward_flops;
        sum.attention_backward_flops += w.attention_backward_flops;
        sum.replicated_bytes += w.replicated_bytes;
        sum.sharded_bytes += w.sharded_bytes;
        sum.kernels += w.kernels;
      };
      add_part(UnitPart::before, 0, pass);
      for (int step = 0; step < 3; ++step) {
        add_part(UnitPart::core, step, pass);
        if (shape.recompute.core) add_part(UnitPart::core, step, UnitPass::F);
      }
      add_part(UnitPart::after, 0, pass);
      EXPECT_EQ(gemm_flops(sum), gemm_flops(whole));
      EXPECT_DOUBLE_EQ(sum.attention_forward_flops, whole.attention_forward_flops);
      EXPECT_DOUBLE_EQ(sum.attention_backward_flops, whole.attention_backward_flops);
      EXPECT_DOUBLE_EQ(sum.replicated_bytes, whole.replicated_bytes);
      EXPECT_DOUBLE_EQ(sum.sharded_bytes, whole.sharded_bytes);
      EXPECT_EQ(sum.kernels, whole.kernels);
    }
  });
}

// Steps launch a GEMM each; all else of their parts is there once.
TEST(Work, OfOverlappedStepsAddsUpToTheUnits) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    shape.sequence_parallel = true;
    shape.tp_overlap = TpOverlap::megatron;
    shape.tp = 4;
    for (const char* set : {"none", "attn+mlp+norm"})
      for (const Unit unit : {Unit::attn, Unit::mlp})
        for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
          for (const auto& [name, choice] : kRecomputes)
            if (name == std::string(set)) shape.recompute = choice;
          const Work whole = work(config, shape, implementation, unit, pass);
          Work sum;
          const auto add_part = [&](UnitPart part, UnitPass of) {
            for (int step = 0; step < shape.division().steps(unit, of, part); ++step) {
              const Work w = unit_part_work(config, shape, implementation, unit, of, part, step);
              sum.gemms.insert(sum.gemms.end(), w.gemms.begin(), w.gemms.end());
              sum.attention_forward_flops += w.attention_forward_flops;
              sum.attention_backward_flops += w.attention_backward_flops;
              sum.replicated_bytes += w.replicated_bytes;
              sum.sharded_bytes += w.sharded_bytes;
              sum.kernels += w.kernels;
            }
          };
          for (const UnitPart part : {UnitPart::norm, UnitPart::before, UnitPart::core, UnitPart::after})
            add_part(part, pass);
          if (pass == UnitPass::I && unit == Unit::attn && shape.recompute.core)
            add_part(UnitPart::core, UnitPass::F);
          EXPECT_DOUBLE_EQ(gemm_flops(sum), gemm_flops(whole));
          EXPECT_DOUBLE_EQ(sum.attention_forward_flops, whole.attention_forward_flops);
          EXPECT_DOUBLE_EQ(sum.attention_backward_flops, whole.attention_backward_flops);
          EXPECT_DOUBLE_EQ(sum.replicated_bytes, whole.replicated_bytes);
          EXPECT_DOUBLE_EQ(sum.sharded_bytes, whole.sharded_bytes);
          EXPECT_EQ(sum.kernels, whole.kernels + 3 + (pass == UnitPass::F ? 3 : 0));
          const Gemm first =
              unit_part_work(config, shape, implementation, unit, pass, UnitPart::before).gemms.front();
          EXPECT_EQ(first.m, shape.tokens() / 4);  // rows of one rank
        }
  });
}

// Pairs of query and key that a rank's steps attend to, counted one by one.
TEST(Work, OfEveryStepOfEveryRankHasAsManyPairs) {
  for (const int cp : {1, 2, 3, 5})
    for (int rank = 0; rank < cp; ++rank)
      for (int step = 0; step < cp; ++step) {
        constexpr int kPiece = 4;
        const auto positions = [&](int of) {
          std::vector<int> all;
          for (const int piece : {of, 2 * cp - 1 - of})
            for (int i = 0; i < kPiece; ++i) all.push_back(piece * kPiece + i);
          return all;
        };
        int pairs = 0, equal = 0;
        for (const int query : positions(rank))
          for (const int key : positions((rank - step + cp) % cp)) {
            pairs += key <= query;
            equal += key == query;
          }
        // The diagonal counts as half, as in the FLOPs of causal attention.
        EXPECT_EQ(pairs - equal / 2, 2 * kPiece * kPiece) << cp << " " << rank << " " << step;
      }
}

TEST(Work, DiffersBetweenImplementationsInTrafficOnly) {
  const ModelConfig config = model("llm-26.3b");
  const Shape shape{4096, 1, 8};
  for (const Unit unit : kGemmUnits) {
    for (const UnitPass pass : kUnitPasses) {
      const Work unfused = work(config, shape, Implementation::megatron, unit, pass);
      const Work fused = work(config, shape, Implementation::suite, unit, pass);
      EXPECT_EQ(gemm_flops(unfused), gemm_flops(fused));
      EXPECT_EQ(unfused.attention_forward_flops, fused.attention_forward_flops);
      EXPECT_GE(unfused.replicated_bytes, fused.replicated_bytes);
      EXPECT_GE(unfused.sharded_bytes, fused.sharded_bytes);
      if (pass == UnitPass::F || pass == UnitPass::I) {
        EXPECT_GT(unfused.replicated_bytes, fused.replicated_bytes);
      }
    }
  }
}

TEST(Work, GrowsWithTheTokensAndItsAttentionWithTheirSquare) {
  const ModelConfig config = model("llm-12.1b");
  const auto of = [&](int seq, int size) {
    return work(config, {seq, size, 4}, Implementation::megatron, Unit::attn, UnitPass::F);
  };
  const Work base = of(2048, 1), longer = of(4096, 1), wider = of(2048, 2);
  EXPECT_EQ(gemm_flops(longer), 2 * gemm_flops(base));
  EXPECT_EQ(gemm_flops(wider), 2 * gemm_flops(base));
  EXPECT_EQ(longer.replicated_bytes, 2 * base.replicated_bytes);
  EXPECT_EQ(longer.attention_forward_flops, 4 * base.attention_forward_flops);
  EXPECT_EQ(wider.attention_forward_flops, 2 * base.attention_forward_flops);
}

// ---- vision encoders ----

constexpr std::array kVisionUnits{Unit::patches, Unit::vision_attn, Unit::vision_mlp, Unit::merger};

Shape with_vision(int seq, int tp, int vision_tokens, int microbatch_size = 1) {
  Shape shape{seq, microbatch_size, tp};
  shape.vision_tokens = vision_tokens;
  return shape;
}

// What the encoder adds to the formula is what its units compute: forward once, backward twice.
TEST(VisionWork, HasTheFlopsOfTheFormula) {
  for (const char* name : {"mllm-14.9b", "mllm-30.3b"})
    for (const int tp : {1, 8}) {
      const ModelConfig config = model(name);
      const Shape shape = with_vision(5120, tp, 3136, 2);
      double all = 0, backward = 0;
      for (const Unit unit : kVisionUnits)
        for (const UnitPass pass : kUnitPasses) {
          const Work of = work(config, shape, Implementation::suite, unit, pass);
          EXPECT_EQ(of.kernels > 0, has_pass(unit, pass)) << to_string(unit, pass);
          const int shares = unit == Unit::patches ? 1 : tp;  // every rank repeats the embedding of patches
          const int layers = is_of_layer(unit) ? config.vision.layers : 1;
          all += layers * shares * (gemm_flops(of) + of.attention_forward_flops);
          backward += layers * shares * of.attention_backward_flops;
          if (unit == Unit::patches)
            all += pass == UnitPass::F ? gemm_flops(of) : 0;  // no gradient of pixels
        }
      all += backward / 2.5 * 2;
      const double of_encoder = model_flops(config, 5120, 3136) - model_flops(config, 5120, 0);
      EXPECT_NEAR(all, 2 * of_encoder, 1e-12 * all) << name << " tp " << tp;
      ModelConfig language = config;
      language.vision = {};
      EXPECT_EQ(model_flops(config, 5120, 0), model_flops(language, 5120));
    }
}

TEST(VisionParameters, OfAllUnitsAreThoseOfTheModel) {
  ModelConfig config = model("mllm-14.9b");
  for (const int tp : {1, 8}) {
    double all = 0;
    for (const Unit unit : kVisionUnits)
      for (const Parameter& parameter : unit_parameters(config, unit)) {
        const double elements = static_cast<double>(parameter.local_rows(tp) * parameter.columns(tp));
        all += (is_of_layer(unit) ? config.vision.layers : 1) * elements *
               (parameter.partial_gradient() ? 1 : tp);
      }
    EXPECT_EQ(all, config.vision_parameters());
  }
  const ParameterPart part = unit_parameters(config, Unit::vision_attn)[1].parts[0];
  EXPECT_EQ(parameter_name(part, 3), "vision.layers.3.attn.q.weight");
  EXPECT_EQ(parameter_name(unit_parameters(config, Unit::merger)[0].parts[0], -1), "vision.merger.norm.gain");
  config.vision = {};
  for (const Unit unit : kVisionUnits) EXPECT_TRUE(unit_parameters(config, unit).empty());
}

TEST(VisionWork, AttendsWithoutAMask) {
  const ModelConfig config = model("mllm-14.9b");
  const Work forward =
      work(config, with_vision(5120, 4, 3136), Implementation::suite, Unit::vision_attn, UnitPass::F);
  EXPECT_EQ(forward.attention_forward_flops, 2 * 2.0 * 3136 * 3136 * 2048 / 4);
}

TEST(VisionWork, IsOfTheEncodersTokensAlone) {
  const ModelConfig config = model("mllm-14.9b");
  for (const Unit unit : kVisionUnits)
    for (const UnitPass pass : kUnitPasses) {
      const auto of = [&](int seq, int vision_tokens) {
        return work(config, with_vision(seq, 4, vision_tokens), Implementation::megatron, unit, pass);
      };
      EXPECT_EQ(of(5120, 3136).gemms, of(1024, 3136).gemms);
      EXPECT_EQ(gemm_flops(of(5120, 6272)), 2 * gemm_flops(of(5120, 3136)));
      EXPECT_EQ(gemm_flops(work(model("llm-12.1b"), {5120, 1, 4}, Implementation::megatron, unit, pass)), 0);
    }
}

TEST(VisionWork, ReducesEachUnitsOutputAndItsInputsGradient) {
  const ModelConfig config = model("mllm-14.9b");
  const Shape shape = with_vision(5120, 4, 3136, 2);
  const auto bytes = [&](Unit unit, UnitPass pass) { return reduced_bytes(config, shape, unit, pass); };
  EXPECT_EQ(bytes(Unit::attn, UnitPass::F), 2.0 * 2 * 5120 * 5120);
  EXPECT_EQ(bytes(Unit::vision_attn, UnitPass::F), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::vision_mlp, UnitPass::I), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::merger, UnitPass::I), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::merger, UnitPass::F), 2.0 * 2 * 784 * 5120);
  EXPECT_FALSE(is_reduced(Unit::patches, UnitPass::F));
}

// By hand, in bf16 elements a token: LayerNorm keeps its input and makes its output.
TEST(VisionSavedTensors, AreTheInputsOfItsKernels) {
  const ModelConfig config = model("mllm-14.9b");
  const Shape shape = with_vision(5120, 4, 3136);
  const auto kept = [&](Unit unit, Implementation implementation) {
    double bytes = 0;
    for (const SavedTensor& tensor : saved_tensors(config, shape, implementation, unit))
      bytes += tensor.made_by_forward ? tensor.bytes : 0;
    return bytes / (2 * 3136);
  };
  const double d = 2048, mask = d / 2;
  EXPECT_EQ(kept(Unit::patches, Implementation::megatron), 1176);
  EXPECT_EQ(kept(Unit::vision_attn, Implementation::megatron), 2 * d + mask + 4 * d / 4 + 2 * 16 / 4);
  EXPECT_EQ(kept(Unit::vision_mlp, Implementation::megatron), 2 * d + mask + 2 * 4 * d / 4);
  EXPECT_EQ(kept(Unit::merger, Implementation::megatron), 2 * d + 2 * d / 4);
  EXPECT_EQ(kept(Unit::merger, Implementation::suite),
            2 * d + 2 * 2 + 2 * d / 4);  // mean and deviation, fp32
  for (const Unit unit : kVisionUnits)
    EXPECT_TRUE(saved_tensors(model("llm-12.1b"), {5120, 1, 4}, Implementation::megatron, unit).empty());
}

// A model may state its head_dim; q_heads · head_dim may then differ from hidden. The MFU must count the
// FLOPs that the units do.
TEST(Work, EqualsTheFormulaWhereTheHeadsAreNotAsWideAsTheModel) {
  const ModelConfig config{"wide heads", 4, 1024, 4096, 16, 4, 128, 32000};  // q is 2048 wide
  const Shape shape{2048, 1, 1};
  const auto forward = [&](Unit unit) {
    return work(config, shape, Implementation::suite, unit, UnitPass::F);
  };
  const double gemms = config.layers * (gemm_flops(forward(Unit::attn)) + gemm_flops(forward(Unit::mlp))) +
                       gemm_flops(forward(Unit::head));
  const double attention = config.layers * forward(Unit::attn).attention_forward_flops;
  EXPECT_DOUBLE_EQ(model_flops(config, shape.seq), 3 * (gemms + attention));
}

// ---- Megatron-LM of 2022 (Korthikanti et al., arXiv 2205.05198) ----

constexpr Recompute kNone{}, kSelective{.core = true}, kFull{.layer = true};

Shape shape_of_2022(int tp, bool sequence_parallel, Recompute recompute) {
  return {2048, 2, tp, sequence_parallel, recompute};
}
const std::vector<std::string> kGpts{"gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"};

TEST(WorkOf2022, HasTheFlopsOfItsAppendix) {
  for (const std::string& name : kGpts) {
    const ModelConfig config = model(name);
    for (const bool sequence_parallel : {false, true}) {
      for (const Recompute recompute : {kNone, kSelective}) {
        const Shape shape = shape_of_2022(8, sequence_parallel, recompute);
        const auto flops = [&](UnitPass pass) {
          double sum = 0;
          for (const Unit unit : {Unit::attn, Unit::mlp})
            sum += gemm_flops(work(config, shape, Implementation::megatron_2022, unit, pass));
          return sum * shape.tp;
        };
        // A layer's forward is 24Bsh²(1 + s/6h), the scores that the mask drops included; the backward twice
        // that, and with selective recomputation the core once more.
        const double h = config.hidden, s = shape.seq, tokens = shape.tokens();
        const double linear = 24 * tokens * h * h, core = 4 * tokens * s * h;
        EXPECT_DOUBLE_EQ(flops(UnitPass::F), linear + core);
        EXPECT_DOUBLE_EQ(flops(UnitPass::I), linear + (recompute == kSelective ? 3 : 2) * core);
        EXPECT_DOUBLE_EQ(flops(UnitPass::W_early) + flops(UnitPass::W_late), linear);
      }
    }
  }
}

TEST(WorkOf2022, AddsTheCoresForwardToItsBackwardWhereThatIsRecomputed) {
  const ModelConfig config = model("gpt-175b");
  const auto of = [&](Recompute recompute, UnitPass pass) {
    return work(config, shape_of_2022(8, false, recompute), Implementation::megatron_2022, Unit::attn, pass);
  };
  const Work kept = of(kNone, UnitPass::I), again = of(kSelective, UnitPass::I);
  // Scores: tokens · s per head; a softmax and a dropout of 4 tensors of two bytes.
  EXPECT_DOUBLE_EQ(again.sharded_bytes - kept.sharded_bytes, 4 * 2 * 2 * 2048.0 * 2048 * 96 / 8);
  EXPECT_EQ(again.replicated_bytes, kept.replicated_bytes);
  EXPECT_EQ(again.gemms.size(), kept.gemms.size() + 2);
  EXPECT_GT(again.kernels, kept.kernels);
  // Full recomputation is segments of its own, not a longer backward.
  EXPECT_EQ(of(kFull, UnitPass::I).sharded_bytes, kept.sharded_bytes);
  EXPECT_EQ(of(kSelective, UnitPass::F).sharded_bytes, of(kNone, UnitPass::F).sharded_bytes);
}

// ---- recomputation by sets of units ----

constexpr Recompute kMlp{.mlp = true}, kAttnMlp{.core = true, .qkv = true, .mlp = true},
    kAttnMlpNorm{.core = true, .qkv = true, .mlp = true, .norm = true};

TEST(Recomputation, OfAUnitIsItsFirstLinearAndUnderAutogradItsSecondToo) {
  const ModelConfig config = model("llm-12.1b");
  // Of one of four ranks: the GEMMs of gate and up, down, QKV (8 heads of 128 for keys and values),
  // projection.
  const double of_tokens = 2 * 6144.0 * 5120 / 4, gate_up = of_tokens * 2 * 18944, down = of_tokens * 18944,
               qkv = of_tokens * (5120 + 2 * 1024), projection = of_tokens * 5120;
  for (const Implementation implementation : {Implementation::suite, Implementation::megatron}) {
    const bool both = implementation == Implementation::megatron;
    const auto of = [&](const Recompute& recompute, Unit unit, UnitPass pass) {
      return work(config, {6144, 1, 4, false, recompute}, implementation, unit, pass);
    };
    for (const Recompute& recompute : {kMlp, kAttnMlp, kAttnMlpNorm}) {
      for (const Unit unit : {Unit::attn, Unit::mlp}) {
        const Work kept = of(kNone, unit, UnitPass::I), again = of(recompute, unit, UnitPass::I),
                   forward = of(kNone, unit, UnitPass::F);
        const bool whole = unit == Unit::mlp || recompute.qkv;
        const double first = unit == Unit::mlp ? gate_up : qkv,
                     second = unit == Unit::mlp ? down : projection;
        EXPECT_DOUBLE_EQ(gemm_flops(again) - gemm_flops(kept), whole ? first + (both ? second : 0) : 0);
        EXPECT_DOUBLE_EQ(again.sharded_bytes - kept.sharded_bytes, whole ? forward.sharded_bytes : 0);
        EXPECT_EQ(again.attention_forward_flops, whole ? forward.attention_forward_flops : 0);
        // A norm reads and writes when fused; unfused, 18 tensors of hidden.
        EXPECT_DOUBLE_EQ(again.replicated_bytes - kept.replicated_bytes,
                         recompute.norm ? (both ? 18 : 2) * 6144.0 * 5120 * 2 : 0);
        EXPECT_EQ(again.kernels > kept.kernels, whole);
        for (const UnitPass pass : {UnitPass::F, UnitPass::W_early, UnitPass::W_late})
          EXPECT_EQ(gemm_flops(of(recompute, unit, pass)), gemm_flops(of(kNone, unit, pass)));
      }
      EXPECT_EQ(gemm_flops(of(recompute, Unit::head, UnitPass::I)),
                gemm_flops(of(kNone, Unit::head, UnitPass::I)));
    }
  }
}

TEST(Recomputation, MakesAgainWhatTheForwardDropsAndNothingElse) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const auto& [name, recompute] : kRecomputes) {
      if (recompute.layer) continue;  // segments of the Program
      Shape recomputed = shape;
      recomputed.recompute = recompute;
      for (const Unit unit : kGemmUnits) {
        const auto all = saved_tensors(config, shape, implementation, unit),
                   again = saved_tensors(config, recomputed, implementation, unit);
        ASSERT_EQ(all.size(), again.size()) << name;
        for (size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].name, again[i].name);
          EXPECT_EQ(all[i].bytes, again[i].bytes);
          EXPECT_EQ(all[i].weight_gradient, again[i].weight_gradient);
          EXPECT_EQ(all[i].made_by_forward, again[i].made_by_forward || again[i].recomputed()) << name;
          if (unit == Unit::head) {
            EXPECT_FALSE(again[i].recomputed()) << name;
          }
        }
      }
    }
  });
}

TEST(Recomputation, LeavesTheInputsOfItsParts) {
  // One token of a tiny model, bf16: hidden 8, q 8, k and v 4 each, ffn 20; kept by attention and MLP.
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};
  const auto kept = [&](const Recompute& recompute, Implementation implementation, Unit unit) {
    double bytes = 0;
    for (const SavedTensor& tensor : saved_tensors(tiny, {1, 1, 1, false, recompute}, implementation, unit))
      bytes += tensor.made_by_forward ? tensor.bytes : 0;
    return bytes;
  };
  constexpr auto kSuite = Implementation::suite, kMegatron = Implementation::megatron;
  // The norm's input, statistics and output.
  EXPECT_EQ(kept(kMlp, kSuite, Unit::mlp), 16 + 4 + 16);
  EXPECT_EQ(kept(kMlp, kSuite, Unit::attn), kept(kNone, kSuite, Unit::attn));
  EXPECT_EQ(kept(kAttnMlp, kSuite, Unit::attn), 16 + 4 + 16);
  for (const Unit unit : {Unit::attn, Unit::mlp}) {
    EXPECT_EQ(kept(kAttnMlpNorm, kSuite, unit), 16);
    // What an unfused norm and dropout keep: the input in fp32, normalised, a mask; and the norm's output.
    EXPECT_EQ(kept(kAttnMlp, kMegatron, unit), 32 + 16 + 8 + 16);
    EXPECT_EQ(kept(kAttnMlpNorm, kMegatron, unit), 32 + 16 + 8);
  }
}

TEST(SequenceParallelism, DividesNormsDropoutAndResidualsAndNothingElse) {
  for (const auto implementation :
       {Implementation::megatron, Implementation::suite, Implementation::megatron_2022}) {
    for (const std::string name : {"llm-12.1b", "gpt-22b"}) {
      for (const Unit unit : kGemmUnits) {
        for (const UnitPass pass : kUnitPasses) {
          const Work whole = work(model(name), {2048, 2, 4}, implementation, unit, pass);
          const Work divided = work(model(name), {2048, 2, 4, true}, implementation, unit, pass);
          EXPECT_DOUBLE_EQ(divided.replicated_bytes * 4, whole.replicated_bytes);
          EXPECT_EQ(divided.sharded_bytes, whole.sharded_bytes);
          EXPECT_EQ(gemm_flops(divided), gemm_flops(whole));
        }
      }
    }
  }
}

// Their Table 2, per layer: sbh(10 + 24/t + 5as/(ht)), with sequence parallelism sbh/t(34 + 5as/h), and with
// selective recomputation without the last term.
TEST(SavedTensorsOf2022, AreThoseOfTheClosedForms) {
  for (const std::string& name : kGpts) {
    const ModelConfig config = model(name);
    const auto bytes = [&](int tp, bool sequence_parallel, Recompute recompute) {
      double sum = 0;
      for (const Unit unit : {Unit::attn, Unit::mlp})
        for (const SavedTensor& tensor :
             saved_tensors(config, shape_of_2022(tp, sequence_parallel, recompute),
                           Implementation::megatron_2022, unit))
          sum += tensor.made_by_forward ? tensor.bytes : 0;
      return sum;
    };
    const double h = config.hidden, s = 2048, a = config.q_heads, sbh = s * 2 * h;
    for (const double t : {1.0, 2.0, 8.0}) {
      const int tp = static_cast<int>(t);
      EXPECT_DOUBLE_EQ(bytes(tp, false, kNone), sbh * (10 + 24 / t + 5 * a * s / (h * t)));
      EXPECT_DOUBLE_EQ(bytes(tp, true, kNone), sbh / t * (34 + 5 * a * s / h));
      EXPECT_DOUBLE_EQ(bytes(tp, false, kSelective), sbh * (10 + 24 / t));
      EXPECT_DOUBLE_EQ(bytes(tp, true, kSelective), sbh * 34 / t);
    }
  }
}

// ---- offload ----

TEST(OffloadedTensors, AreWholeOnesUpToTheRatio) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const double all = offloaded_bytes(config, shape, implementation, 3, 1);
    double kept = 0, largest = 0;
    for (const Unit unit : {Unit::attn, Unit::mlp})
      for (const SavedTensor& tensor : saved_tensors(config, shape, implementation, unit))
        if (tensor.made_by_forward) {
          kept += 3 * tensor.bytes;
          largest = std::max(largest, tensor.bytes);
        }
    EXPECT_DOUBLE_EQ(all, kept);
    for (const double ratio : {0.0, 0.1, 0.25, 0.5, 0.75, 0.9}) {
      const double bytes = offloaded_bytes(config, shape, implementation, 3, ratio);
      EXPECT_LE(bytes, ratio * all);
      EXPECT_GT(bytes + largest, ratio * all) << "any other would fit too";
    }
    EXPECT_EQ(offloaded_bytes(config, shape, implementation, 0, 1), 0);
  });
}

TEST(OffloadedTensors, AreTakenInTheOrderOfTheForwardWhereTheyFit) {
  const ModelConfig config = model("tiny");
  const Shape shape{.seq = 8, .microbatch_size = 1, .tp = 1};
  const auto names = [&](double ratio, Recompute recompute = {}) {
    Shape with = shape;
    with.recompute = recompute;
    std::vector<std::string> all;
    for (const OffloadedTensor& each : offloaded_tensors(config, with, Implementation::suite, 2, ratio))
      all.push_back(std::to_string(each.layer) + " " + to_string(each.unit) + " " + each.tensor.name);
    return all;
  };
  EXPECT_EQ(names(1).size(), 2U * (6 + 5));
  EXPECT_EQ(names(1, {.layer = true}), (std::vector<std::string>{"0 attn norm input", "1 attn norm input"}));
  EXPECT_EQ(names(0.5, {.layer = true}), std::vector<std::string>{"0 attn norm input"});
  const std::vector<std::string> some = names(0.5);
  EXPECT_EQ(some.front(), "0 attn norm input");
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end(),
                             [](const std::string& a, const std::string& b) { return a[0] < b[0]; }));
  for (const std::string& name : names(1, {.mlp = true})) EXPECT_FALSE(name.ends_with("activation")) << name;
}

TEST(OptimizerBytes, AreAdamsAndWhatTheFrameworkAddsAroundIt) {
  EXPECT_EQ(optimizer_bytes(Implementation::suite),
            30);  // gradient, master and moments there and back, weight
  EXPECT_GT(optimizer_bytes(Implementation::megatron), optimizer_bytes(Implementation::suite));
  // fp16's loss scale: gradients read and written once more.
  EXPECT_EQ(optimizer_bytes(Implementation::megatron_2022), optimizer_bytes(Implementation::megatron) + 8);
}

// ---- saved tensors ----

double total(const std::vector<SavedTensor>& tensors) {
  double sum = 0;
  for (const SavedTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

TEST(SavedTensors, GrowWithTheTokensAlone) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const double bytes = total(saved_tensors(config, shape, implementation, unit));
      EXPECT_GT(bytes, 0);
      EXPECT_EQ(total(saved_tensors(config, {2 * shape.seq, shape.microbatch_size, shape.tp}, implementation,
                                    unit)),
                2 * bytes);
      EXPECT_EQ(total(saved_tensors(config, {shape.seq, 2 * shape.microbatch_size, shape.tp}, implementation,
                                    unit)),
                2 * bytes);
    }
  });
}

TEST(SavedTensors, AreEachEitherShardedOrWholeOnEveryRank) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto whole = saved_tensors(config, {shape.seq, shape.microbatch_size, 1}, implementation, unit);
      const auto divided = saved_tensors(config, shape, implementation, unit);
      ASSERT_EQ(whole.size(), divided.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(whole[i].name, divided[i].name);
        // Tensors as wide as the model are unsharded on every rank: norms' inputs and outputs, outputs'
        // gradients.
        const bool replicated = whole[i].name.find("norm") != std::string::npos ||
                                whole[i].name == "dropout mask" || whole[i].name == "gradient of the output";
        EXPECT_DOUBLE_EQ(divided[i].bytes, replicated ? whole[i].bytes : whole[i].bytes / shape.tp)
            << whole[i].name;
      }
    }
  });
}

TEST(SavedTensors, OfTheFusedUnitsAreTheInputsOfTheirKernels) {
  // One token of a tiny model, bf16: hidden 8, q 8, k and v 4 each, ffn 20, vocabulary 50.
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};
  std::map<std::string, double> bytes;
  for (const Unit unit : kGemmUnits)
    for (const SavedTensor& tensor : saved_tensors(tiny, {1, 1, 1}, Implementation::suite, unit))
      bytes[to_string(unit) + ": " + tensor.name + (tensor.made_by_forward ? "" : ", by I") +
            (tensor.weight_gradient ? ", for W" : "")] = tensor.bytes;
  const std::map<std::string, double> expected{{"attn: norm input", 16},
                                               {"attn: norm statistics", 4},
                                               {"attn: norm output, for W", 16},
                                               {"attn: q, k, v", 32},
                                               {"attn: attention output, for W", 16},
                                               {"attn: log-sum-exp", 16},
                                               {"attn: gradient of q, k, v, by I, for W", 32},
                                               {"attn: gradient of the output, by I, for W", 16},
                                               {"mlp: norm input", 16},
                                               {"mlp: norm statistics", 4},
                                               {"mlp: norm output, for W", 16},
                                               {"mlp: gate and up", 80},
                                               {"mlp: activation, for W", 40},
                                               {"mlp: gradient of gate and up, by I, for W", 80},
                                               {"mlp: gradient of the output, by I, for W", 16},
                                               {"head: norm input", 16},
                                               {"head: norm statistics", 4},
                                               {"head: norm output, for W", 16},
                                               {"head: gradient of the logits, for W", 100}};
  EXPECT_EQ(bytes, expected);
}

TEST(SavedTensors, ThatIMakesAreMadeForW) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits)
      for (const SavedTensor& tensor : saved_tensors(config, shape, implementation, unit))
        EXPECT_TRUE(tensor.made_by_forward || tensor.weight_gradient) << tensor.name;
  });
}

TEST(SavedTensors, TakeMoreMemoryUnfused) {
  const Shape shape{6144, 1, 4};
  for (const Unit unit : kGemmUnits)
    EXPECT_GT(total(saved_tensors(model("llm-12.1b"), shape, Implementation::megatron, unit)),
              total(saved_tensors(model("llm-12.1b"), shape, Implementation::suite, unit)));
}

TEST(HiddenBytes, AreThoseOfThePapersAllReduces) {
  EXPECT_EQ(hidden_bytes(model("llm-12.1b"), {6144, 1, 8}), 60.0 * 1024 * 1024);
  EXPECT_EQ(hidden_bytes(model("llm-12.1b"), {3072, 2, 4}), 60.0 * 1024 * 1024);
  EXPECT_NEAR(hidden_bytes(model("llm-26.3b"), {4096, 1, 8}) / 1e6, 58.7, 0.05);
}

TEST(CheckShardable, RefusesWhatDoesNotDivideAndNamesIt) {
  for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(refusal([&] { check_shardable(model("llm-12.1b"), tp); }), "");
  EXPECT_THAT(refusal([&] { check_shardable(model("llm-12.1b"), 3); }),
              AllOf(StartsWith("parallel.tp: 3 "), HasSubstr("40 attention heads")));
  EXPECT_THAT(refusal([&] { check_shardable(model("llm-12.1b"), 20); }), HasSubstr("8 key and value heads"));
  EXPECT_THAT(refusal([] {
                check_shardable({"m", 1, 12, 10, 12, 12, 1, 12}, 3);
              }),
              HasSubstr("10 feed-forward columns"));
  EXPECT_THAT(refusal([] {
                check_shardable({"m", 1, 12, 12, 12, 12, 1, 10}, 3);
              }),
              HasSubstr("10 vocabulary entries of m"));
  ModelConfig with{"m", 1, 12, 12, 12, 12, 1, 12};
  with.vision = {2, 20, 10, 80};
  EXPECT_THAT(refusal([&] { check_shardable(with, 4); }),
              HasSubstr("4 does not divide the 10 attention heads of the vision encoder of m"));
  EXPECT_EQ(refusal([&] { check_shardable(with, 2); }), "");
}

TEST(UnitNames, AreThoseOfCostTables) {
  std::vector<std::string> names;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (has_pass(unit, pass)) names.push_back(to_string(unit, pass));
  EXPECT_THAT(names,
              ElementsAre("attn.F", "attn.I", "attn.W_early", "attn.W", "mlp.F", "mlp.I", "mlp.W_early",
                          "mlp.W", "head.F", "head.I", "head.W", "embedding.F", "embedding.W", "patches.F",
                          "patches.W", "vision_attn.F", "vision_attn.I", "vision_attn.W_early",
                          "vision_attn.W", "vision_mlp.F", "vision_mlp.I", "vision_mlp.W_early",
                          "vision_mlp.W", "merger.F", "merger.I", "merger.W_early", "merger.W"));
}

// ---- buckets ----

// As many as the runtime's tensors have; but the last norm, which no count of the head's has.
TEST(Buckets, CountTheParametersOfUnits) {
  for (const char* name : {"llm-12.1b", "mllm-14.9b"}) {
    const ModelConfig config = model(name);
    for (const Unit unit : kUnits) {
      int64_t elements = 0;
      for (const Parameter& parameter : unit_parameters(config, unit))
        elements += parameter.local_rows(1) * parameter.columns(1);
      EXPECT_EQ(config.parameters_of(unit), elements - (unit == Unit::head ? config.hidden : 0))
          << name << " " << to_string(unit);
    }
  }
}

TEST(Buckets, AreMegatronsByDefault) {
  const ModelConfig config = model("llm-12.1b"), tied = model("gpt-22b");
  EXPECT_EQ(megatron_bucket_rule(config, 4, 8).size, 40e6);
  EXPECT_EQ(megatron_bucket_rule(config, 4, 64).size, 64e6);
  const auto of = [](const BucketRule& rule, Unit unit) {
    return rule.parameters[static_cast<size_t>(unit)];
  };
  for (const Unit unit : kUnits)
    EXPECT_EQ(of(megatron_bucket_rule(config, 4, 8), unit), config.parameters_of(unit) / 4);
  EXPECT_EQ(of(megatron_bucket_rule(tied, 8, 8), Unit::head), 0);
  EXPECT_EQ(of(megatron_bucket_rule(tied, 8, 8), Unit::embedding), tied.vocabulary_parameters() / 8);
}

TEST(Buckets, CloseAtTheUnitThatReachesTheirSize) {
  BucketRule rule{.size = 5};
  for (const auto& [unit, count] :
       std::map<Unit, double>{{Unit::attn, 2}, {Unit::mlp, 3}, {Unit::embedding, 9}})
    rule.parameters[static_cast<size_t>(unit)] = count;
  const auto filled = [&](int layers) {
    std::vector<std::string> texts;
    for (const Bucket& bucket : fill_buckets(units_of_chunk(layers, {.embedding = true}), rule)) {
      texts.push_back(std::to_string(static_cast<int>(bucket.parameters)) + ":");
      for (const auto& [unit, layer] : bucket.units)
        texts.back() += " " + to_string(unit) + std::to_string(layer);
    }
    return texts;
  };
  EXPECT_THAT(filled(2), ElementsAre("5: mlp1 attn1", "5: mlp0 attn0", "9: embedding0"));
  rule.size = 6;
  EXPECT_THAT(filled(2), ElementsAre("8: mlp1 attn1 mlp0", "11: attn0 embedding0"));
  rule.size = 20;  // all that there is
  EXPECT_THAT(filled(2), ElementsAre());
  EXPECT_THAT(filled(0), ElementsAre());
  rule.size = 0;
  EXPECT_THAT(filled(2), ElementsAre());
}

}  // namespace
}  // namespace stp
