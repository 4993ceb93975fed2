// Bytes of activations: what a stage keeps, and the peak on each pipeline rank and its host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "stp/cost/memory.h"
#include "stp/program/lower.h"
#include "support/jobs.h"
#include "support/saved_memory.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::ElementsAre;

std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<ActivationBytes>& bytes,
                               double offload = 0) {
  const std::vector<int> layers(schedule.placement.stages(), 1);
  return peak_activation_bytes(lower(schedule, layers, {.strategy = {.offload = offload}}), bytes);
}

// Zero Bubble, Table 1: of s·b·(34h + 5as) bytes of a layer W needs 32·s·b·h: no scores.
TEST(ActivationBytes, OfMegatronOf2022KeepNoScoresForW) {
  const ModelConfig of_zero_bubble = model("gpt-1.5b");
  const double sb = 1024.0 * 6, h = of_zero_bubble.hidden, a = of_zero_bubble.q_heads;
  const ActivationBytes layer =
      activation_bytes(job("gpt-1.5b", {1024, 6, {}}, 1, Implementation::megatron_2022), {1, 0})[0];
  EXPECT_DOUBLE_EQ(layer.until_I, sb * (34 * h + 5 * a * 1024));
  EXPECT_DOUBLE_EQ(layer.until_W, sb * 32 * h);
}

TEST(ActivationBytes, OfRecomputedLayersAreTheirInputsAndOneWholeLayerDuringTheBackward) {
  const auto bytes = [&](bool sequence_parallel, Recompute recompute, int layers) {
    return activation_bytes(
        job("gpt-22b", {2048, 4, {.tp = 8, .sequence_parallel = sequence_parallel, .recompute = recompute}},
            1, Implementation::megatron_2022),
        {layers, 0})[0];
  };
  constexpr Recompute kNone{}, kFull{.layer = true};
  const double sbh = 2048.0 * 4 * 6144;  // Korthikanti et al., Table 2
  EXPECT_DOUBLE_EQ(bytes(false, kFull, 48).until_I, 48 * 2 * sbh);
  EXPECT_DOUBLE_EQ(bytes(true, kFull, 48).until_I, 48 * 2 * sbh / 8);
  const ActivationBytes whole = bytes(false, kNone, 1);
  EXPECT_DOUBLE_EQ(bytes(false, kFull, 48).during_backward, whole.until_I);
  EXPECT_EQ(whole.during_backward, 0);
  EXPECT_EQ(bytes(false, kFull, 0).during_backward, 0);
  // Of the first 3 of 5 layers: when they are made again, those of the two others are free.
  constexpr Recompute kBlock{.layer = true, .first = 3};
  EXPECT_DOUBLE_EQ(bytes(true, kBlock, 5).until_I, 3 * 2 * sbh / 8 + 2 * bytes(true, kNone, 1).until_I);
  EXPECT_EQ(bytes(true, kBlock, 5).during_backward, 0);
  EXPECT_EQ(bytes(true, kBlock, 2).until_I, bytes(true, kFull, 2).until_I);
  EXPECT_EQ(bytes(true, kBlock, 2).during_backward, bytes(true, kFull, 2).during_backward);
  // The walk counts it in the blocks that have a backward, and drops it with them.
  const Schedule schedule = one_rank({"F0.0", "F0.1", "B0.0", "B0.1"});
  EXPECT_THAT(peak_bytes(schedule, {{10, 10, 7}}), ElementsAre(27));
  EXPECT_THAT(peak_bytes(schedule, {{10, 10, 0}}), ElementsAre(20));
}

TEST(ActivationBytes, OfRecomputedUnitsAreWhatTheyKeepAndTheLargerUnitDuringTheBackward) {
  constexpr Recompute kAttnMlp{.core = true, .qkv = true, .mlp = true, .activation = true};
  for (const Implementation implementation : {Implementation::megatron, Implementation::suite}) {
    const auto bytes = [&](const Recompute& recompute) {
      return activation_bytes(
          job("llm-12.1b", {6144, 1, {.tp = 4, .recompute = recompute}}, 1, implementation), {4, 0})[0];
    };
    const ActivationBytes whole = bytes({}), mlp = bytes({.mlp = true, .activation = true}),
                          both = bytes(kAttnMlp);
    const double of_mlp = (whole.until_I - mlp.until_I) / 4, of_attn = (mlp.until_I - both.until_I) / 4;
    EXPECT_GT(of_mlp, of_attn);
    EXPECT_DOUBLE_EQ(mlp.during_backward, of_mlp);
    EXPECT_DOUBLE_EQ(both.during_backward, of_mlp);
    // What W needs is there again after I.
    EXPECT_DOUBLE_EQ(mlp.until_W, whole.until_W);
    EXPECT_DOUBLE_EQ(both.until_W, whole.until_W);
  }
}

TEST(ActivationBytes, AreTheSavedTensorsOfTheStagesLayersAndTheHeadOnTheLast) {
  for (const Implementation implementation : {Implementation::megatron, Implementation::suite}) {
    const Job j = job("llm-12.1b", {6144, 1, {.tp = 4}}, 4, implementation);
    const auto kept = [&](Unit unit) { return kept_bytes(j.model, j.shape, implementation, unit); };
    const double layer = kept(Unit::attn) + kept(Unit::mlp);
    const std::vector<ActivationBytes> stages = activation_bytes(j, {4, 0, 7, 2});
    ASSERT_EQ(stages.size(), 4U);
    EXPECT_DOUBLE_EQ(stages[0].until_I, 4 * layer);
    EXPECT_EQ(stages[1].until_I, 0);
    EXPECT_DOUBLE_EQ(stages[2].until_I, 7 * layer);
    EXPECT_DOUBLE_EQ(stages[3].until_I, 2 * layer + kept(Unit::head));
    for (const ActivationBytes& stage : stages) {
      if (implementation == Implementation::megatron) {
        EXPECT_DOUBLE_EQ(stage.until_W, stage.until_I * 32 / 34);
      }
    }
  }
}

// Both counts of memory: by stage, and op by op.
TEST(ActivationBytes, OfAVisionEncoderAreOnTheFirstStage) {
  for (const Implementation implementation : {Implementation::megatron, Implementation::suite}) {
    const Job j = vision_job(implementation);
    const auto sum = [&](bool of_forward) {
      double bytes = 0;
      for (const Unit unit : kUnits)
        for (const SavedTensor& tensor : saved_tensors(j.model, j.shape, implementation, unit))
          if ((is_vision(unit) || unit == Unit::embedding) &&
              (of_forward ? tensor.made_by_forward : tensor.weight_gradient))
            bytes += (is_of_layer(unit) ? 32 : 1) * tensor.bytes;
      return bytes;
    };
    const std::vector<ActivationBytes> stages = activation_bytes(j, kVisionLayers);
    EXPECT_NEAR(stages[0].until_I, sum(true), 1e-9 * stages[0].until_I);
    EXPECT_NEAR(stages[0].until_W,
                implementation == Implementation::suite ? sum(false) : stages[0].until_I * 32 / 34,
                1e-9 * stages[0].until_W);
    if (implementation != Implementation::suite) continue;
    const Schedule schedule = one_rank({"F0.0", "F1.0", "B1.0", "I0.0", "W0.0"}, 2);
    const Program program = lower(schedule, {0, 33}, {.embedding = true, .vision_layers = 32});
    const double peak = peak_saved_bytes(program, j.model, j.shape, implementation)[0];
    const std::vector<ActivationBytes> whole = activation_bytes(j, {0, 33});
    EXPECT_NEAR(peak, whole[0].until_I + whole[1].until_I, 0.01 * peak);  // and what the head's I makes
  }
}

TEST(ActivationBytes, OfOurOwnKernelsKeepForWWhatWNeeds) {
  const Job j = job("llm-12.1b", {6144, 1, {.tp = 4}}, 4, Implementation::suite);
  double for_weights = 0;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const SavedTensor& tensor : saved_tensors(j.model, j.shape, Implementation::suite, unit))
      for_weights += tensor.weight_gradient ? tensor.bytes : 0;
  EXPECT_DOUBLE_EQ(activation_bytes(j, {3, 1})[0].until_W, 3 * for_weights);
}

TEST(PeakActivationBytes, AreThoseOfATinyScheduleByHand) {
  const std::vector<ActivationBytes> bytes{{10, 6}};
  // Full backward: freed at once.
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "B0.0", "F0.1", "B0.1"}), bytes), ElementsAre(10));
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "F0.1", "B0.0", "B0.1"}), bytes), ElementsAre(20));
  // Split: I leaves 6 for W, then a second forward comes on top.
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "I0.0", "F0.1", "I0.1", "W0.0", "W0.1"}), bytes), ElementsAre(16));
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "I0.0", "W0.0", "F0.1", "B0.1"}), bytes), ElementsAre(10));
  // A braid's two actions count as alive together, whichever is named first.
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "F0.1&B0.0", "B0.1"}), bytes), ElementsAre(20));
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "B0.0&F0.1", "B0.1"}), bytes), ElementsAre(20));
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "I0.0", "F0.1&W0.0", "B0.1"}), bytes), ElementsAre(16));
}

TEST(PeakActivationBytes, GrowWhereIMakesMoreForWThanItFrees) {
  EXPECT_THAT(peak_bytes(one_rank({"F0.0", "F0.1", "I0.0", "W0.0", "B0.1"}), {{10, 13}}), ElementsAre(23));
}

// F0.0 is away during F0.2 and F0.3 and comes back beside F0.4; F0.1 is away from F0.3 on.
TEST(PeakActivationBytes, LackWhatIsOnTheHost) {
  const Schedule schedule =
      one_rank({"F0.0", "F0.1", "F0.2", "F0.3", "F0.4", "B0.0", "B0.1", "B0.2", "B0.3", "B0.4"});
  EXPECT_THAT(peak_bytes(schedule, {{10, 10}}), ElementsAre(50));
  // During F0.4: F0.0 is back, F0.1 and F0.2 are away: 10 + 4 + 4 + 10 + 10. During B0.0 F0.1 is back and
  // F0.3 away.
  EXPECT_THAT(peak_bytes(schedule, {{.until_I = 10, .until_W = 10, .offloaded = 6}}, 0.6), ElementsAre(38));
  const std::vector<ActivationBytes> bytes{{.until_I = 10, .until_W = 10, .offloaded = 6}};
  EXPECT_THAT(peak_host_bytes(lower(schedule, {1}, {.strategy = {.offload = 0.6}}), bytes), ElementsAre(24));
  EXPECT_THAT(peak_host_bytes(lower(schedule, {1}, {}), bytes), ElementsAre(0));
}

// An outline knows the copies' places without ops, and the order as it runs.
TEST(PeakActivationBytes, OfAnOutlineAreThoseOfItsProgram) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the cases should be reproducible
  for (int each = 0; each < 60; ++each) {
    const int p = 1 + static_cast<int>(random() % 4), m = 2 + static_cast<int>(random() % 12);
    const Schedule schedule =
        random_schedule(random, each % 2 == 0 ? Placement::v(p) : Placement::loop(p, 1), m);
    const std::vector<int> layers(schedule.placement.stages(), 1);
    std::vector<ActivationBytes> bytes(layers.size());
    const auto number = [&](int most) { return 1.0 + static_cast<int>(random() % most); };
    for (auto& [until_I, until_W, during_backward, offloaded, shared_head] : bytes)
      until_I = 10 + number(50), until_W = number(60), during_backward = number(9), offloaded = number(8),
      shared_head = 0;
    const Lowering lowering{.braid = each % 3 == 0 ? BraidPolicy::sequential : BraidPolicy::static_merge,
                            .strategy = {.tp = 2,
                                         .tp_overlap = each % 5 == 0 ? TpOverlap::domino : TpOverlap::none,
                                         .offload = each % 4 == 0 ? 0 : 0.5}};
    EXPECT_EQ(peak_activation_bytes(outline(schedule, layers, lowering), bytes),
              peak_activation_bytes(lower(schedule, layers, lowering), bytes));
  }
}

TEST(PeakActivationBytes, WeighEachChunkByItsStageAndEachRankApart) {
  const std::vector<ActivationBytes> bytes{{1, 1}, {10, 10}, {100, 100}, {1000, 1000}};
  const std::vector<std::string> blocks{"F0.0", "F1.0", "B1.0", "B0.0"};
  // Rank 0 holds stages 0 and 3, rank 1 holds 1 and 2.
  const Schedule schedule = schedule_of(Placement::v(2), 1, {blocks, blocks});
  EXPECT_THAT(peak_bytes(schedule, bytes), ElementsAre(1001, 110));
  Schedule loop = schedule;
  loop.placement = Placement::loop(2, 2);
  EXPECT_THAT(peak_bytes(loop, bytes), ElementsAre(101, 1010));
}

}  // namespace
}  // namespace stp
