// The tensors that units save for their backward: names, bytes, and who makes them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "stp/model/work.h"
#include "support/models.h"

namespace stp {
namespace {

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
      EXPECT_EQ(total(saved_tensors(config, {2 * shape.seq, shape.microbatch_size, {.tp = shape.strategy.tp}},
                                    implementation, unit)),
                2 * bytes);
      EXPECT_EQ(total(saved_tensors(config, {shape.seq, 2 * shape.microbatch_size, {.tp = shape.strategy.tp}},
                                    implementation, unit)),
                2 * bytes);
    }
  });
}

TEST(SavedTensors, AreEachEitherShardedOrWholeOnEveryRank) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto whole = saved_tensors(config, {shape.seq, shape.microbatch_size}, implementation, unit);
      const auto divided = saved_tensors(config, shape, implementation, unit);
      ASSERT_EQ(whole.size(), divided.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(whole[i].which, divided[i].which);
        const std::string name = to_string(whole[i].which);
        // Tensors as wide as the model are unsharded on every rank: norms' inputs and outputs, outputs'
        // gradients.
        const bool replicated = name.find("norm") != std::string::npos || name == "dropout mask" ||
                                name == "gradient of the output";
        EXPECT_DOUBLE_EQ(divided[i].bytes, replicated ? whole[i].bytes : whole[i].bytes / shape.strategy.tp)
            << name;
      }
    }
  });
}

TEST(SavedTensors, OfTheFusedUnitsAreTheInputsOfTheirKernels) {
  // One token of a tiny model, bf16: hidden 8, q 8, k and v 4 each, ffn 20, vocabulary 50.
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};
  std::map<std::string, double> bytes;
  for (const Unit unit : kGemmUnits)
    for (const SavedTensor& tensor : saved_tensors(tiny, {1, 1}, Implementation::suite, unit))
      bytes[to_string(unit) + ": " + to_string(tensor.which) + (tensor.made_by_forward ? "" : ", by I") +
            (tensor.weight_gradient ? ", for W" : "")] = tensor.bytes;
  const std::map<std::string, double> expected{
      {"attn: norm input", 16},
      {"attn: norm statistics", 4},
      {"attn: norm output, for W", 16},
      {"attn: q, k, v", 32},
      {"attn: attention output, for W", 16},
      {"attn: log-sum-exp", 16},
      {"attn: gradient of the first linear's output, by I, for W", 32},
      {"attn: gradient of the output, by I, for W", 16},
      {"mlp: norm input", 16},
      {"mlp: norm statistics", 4},
      {"mlp: norm output, for W", 16},
      {"mlp: fc1 output", 80},
      {"mlp: activation, for W", 40},
      {"mlp: gradient of the first linear's output, by I, for W", 80},
      {"mlp: gradient of the output, by I, for W", 16},
      {"head: norm input", 16},
      {"head: norm statistics", 4},
      {"head: norm output, for W", 16},
      {"head: gradient of the logits, for W", 100}};
  EXPECT_EQ(bytes, expected);
}

TEST(SavedTensors, TakeMoreMemoryUnfused) {
  const Shape shape{6144, 1, {.tp = 4}};
  for (const Unit unit : kGemmUnits)
    EXPECT_GT(total(saved_tensors(model("llm-12.1b"), shape, Implementation::megatron, unit)),
              total(saved_tensors(model("llm-12.1b"), shape, Implementation::suite, unit)));
}

}  // namespace
}  // namespace stp
