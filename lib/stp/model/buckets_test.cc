// Buckets of data parallelism: their rule, and how they are filled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "stp/model/buckets.h"
#include "support/models.h"

namespace stp {
namespace {

using testing::ElementsAre;

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
