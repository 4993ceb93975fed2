// How layers are divided over the virtual stages, against the paper's partitions; buckets: their rule, and
// how they are filled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "stp/model/partition.h"
#include "support/models.h"
#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

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

TEST(Buckets, AreMegatronsByDefault) {
  const ModelConfig config = model("llm-12.1b"), tied = model("gpt-22b");
  EXPECT_EQ(megatron_bucket_rule(config, {.tp = 4, .dp = 8}).size, 40e6);
  EXPECT_EQ(megatron_bucket_rule(config, {.tp = 4, .cp = 8, .dp = 8}).size, 64e6);
  const auto of = [](const BucketRule& rule, Unit unit) {
    return rule.parameters[static_cast<size_t>(unit)];
  };
  for (const Unit unit : kUnits)
    EXPECT_EQ(of(megatron_bucket_rule(config, {.tp = 4, .dp = 8}), unit), config.parameters_of(unit) / 4);
  EXPECT_EQ(of(megatron_bucket_rule(tied, {.tp = 8, .dp = 8}), Unit::head), 0);
  EXPECT_EQ(of(megatron_bucket_rule(tied, {.tp = 8, .dp = 8}), Unit::embedding),
            tied.vocabulary_parameters() / 8 + tied.position_parameters());
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
