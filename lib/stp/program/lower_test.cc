// Lowering of any schedule: how many ops, in closed form; links between ranks; the end of a step; refusals.
#include "stp/program/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/programs.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Lower, IssuesAsManyOpsOfEachKindAsThePassesSay) {
  std::mt19937 random(511);
  for (int draw = 0; draw < 60; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, m);
    const std::vector<int> layers = random_layers(random, placement.stages());
    const int last = placement.stages() - 1;
    // How many layers and heads each pass runs.
    std::map<Pass, int> layer_passes, head_passes;
    for (int rank = 0; rank < p; ++rank) {
      for (const Block& block : schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = placement.stage(rank, action.chunk);
          layer_passes[action.pass] += layers[stage];
          head_passes[action.pass] += stage == last;
        }
      }
    }
    const int all = m * std::accumulate(layers.begin(), layers.end(), 0);
    ASSERT_EQ(layer_passes[Pass::F], all);
    for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
      auto counts = count(lower(schedule, layers, {Release::chain, order, false}));
      const bool suite = order == BackwardOrder::suite;
      EXPECT_EQ(counts["all-reduce in F"], 2 * all);
      EXPECT_EQ(counts["all-reduce in I"], 2 * layer_passes[Pass::I]);
      EXPECT_EQ(counts["all-reduce in B"], 2 * layer_passes[Pass::B]);
      EXPECT_EQ(counts["all-reduce in W"], 0);
      for (const std::string unit : {"attn", "mlp"}) {
        EXPECT_EQ(counts["compute " + unit + ".F"], all);
        EXPECT_EQ(counts["compute " + unit + ".I"], all);
        EXPECT_EQ(counts["compute " + unit + ".W_early"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts["compute " + unit + ".W"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts["both " + unit], layer_passes[Pass::W] + (suite ? layer_passes[Pass::B] : 0));
      }
      EXPECT_EQ(counts["compute head.F"], m);
      EXPECT_EQ(counts["compute head.I"], m);
      EXPECT_EQ(counts["both head"], m);
      EXPECT_EQ(counts["compute head.W"] + counts["compute head.W_early"], 0);
      EXPECT_EQ(counts["optimizer"], 0);
    }
  }
}

TEST(Lower, EndsEachRankWithAnOptimizerOpThatWaitsForNothingButItsStream) {
  const Program program =
      lower(stp_schedule(3, 8), std::vector<int>(6, 1), {Release::chain, BackwardOrder::suite, true});
  for (int rank = 0; rank < 3; ++rank) {
    const OpId last = program.rank_begin[rank + 1] - 1;
    EXPECT_EQ(program.ops[last].kind, OpKind::optimizer);
    EXPECT_EQ(program.ops[last].block, -1);
    EXPECT_EQ(program.stage_of(last), -1);
    EXPECT_EQ(program.stream_of(last).kind, StreamKind::compute);
    EXPECT_THAT(program.dependencies(last), IsEmpty());
  }
  EXPECT_EQ(count(program)["optimizer"], 3);
}

TEST(Lower, AddsUpTiedEmbeddingsOnceBothRanksHaveAllGradients) {
  const Schedule schedule =
      by_hand(Placement::loop(3, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const auto reductions = [](const Program& program) {
    std::vector<std::pair<int, std::vector<std::string>>> found;  // the rank, and what it waits for
    for (OpId op = 0; op < program.ops.size(); ++op) {
      if (program.ops[op].kind != OpKind::embedding_reduce) continue;
      found.push_back({program.stream_of(op).rank, {}});
      for (const OpId needed : program.dependencies(op))
        found.back().second.push_back(std::to_string(program.stream_of(needed).rank) + " " +
                                      describe_op(program, needed));
      const OpId last = program.rank_begin[found.back().first + 1] - 1;
      EXPECT_THAT(program.dependencies(last), testing::Contains(op)) << "the optimizer";
    }
    return found;
  };
  const std::vector<std::string> of_chunks = {"0 gradients of chunk 0", "2 gradients of chunk 0"};
  EXPECT_THAT(
      reductions(lower(schedule, {1, 1, 1}, {.optimizer = true, .data_parallel = true, .tied = true})),
      ElementsAre(std::pair{0, of_chunks}, std::pair{2, of_chunks}));
  const std::vector<std::string> computes = {"0 attn.W of B0.0, layer 0", "2 attn.W of B0.0, layer 0"};
  EXPECT_THAT(reductions(lower(schedule, {1, 1, 1}, {.optimizer = true, .tied = true})),
              ElementsAre(std::pair{0, computes}, std::pair{2, computes}));
  // Both ends of a V are on one rank, which has one copy.
  const Program v =
      lower(stp_schedule(2, 8), {1, 1, 1, 1}, {.optimizer = true, .data_parallel = true, .tied = true});
  EXPECT_THAT(reductions(v), IsEmpty());
}

TEST(Lower, RefusesAnyOtherNumberOfLayersPerChunkThanThereAreVirtualStages) {
  for (const size_t entries : {0, 3, 5, 8})
    EXPECT_THAT(refusal([&] { lower(stp_schedule(2, 5), std::vector<int>(entries, 1), {}); }),
                AllOf(StartsWith("layers_per_chunk: has " + std::to_string(entries) + " entries"),
                      HasSubstr("2 ranks"), HasSubstr("2 chunk"), HasSubstr("; write 4 entries")));
}

TEST(Lower, RefusesNegativeAndHugeNumbersOfLayers) {
  const Schedule one = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  for (const int layers : {-1, 32768, 2147483647})
    EXPECT_THAT(refusal([&] { lower(one, {layers}, {}); }),
                AllOf(StartsWith("layers_per_chunk: " + std::to_string(layers) + " is out of range"),
                      HasSubstr("32767")));
  const Program program = lower(one, {32767}, {});
  EXPECT_EQ(program.ops.size(), 32767U * 2 * 2 + 1 + 32767U * 2 * 3 + 2);
  EXPECT_EQ(program.ops[program.ops.size() - 1].layer, 0);
}

TEST(Lower, RefusesAProgramOfTooManyOpsBeforeItMakesThem) {
  Schedule schedule{"long", Placement::loop(1, 1), 300, {{}}};
  for (int m = 0; m < schedule.microbatches; ++m)
    for (const Pass pass : {Pass::F, Pass::B}) schedule.ranks[0].emplace_back(Action{pass, 0, m});
  // 327 673 ops a microbatch: 204 of them fit.
  EXPECT_THAT(refusal([&] { lower(schedule, {32767}, {}); }),
              AllOf(StartsWith("microbatches: "),
                    HasSubstr("more than " + std::to_string(kMaxOps) + " ops; use fewer")));
}

// `megatron-batched` differs from `block` in waits for the rank's own sends alone, and no block is copied.
TEST(Lower, CopiesABlockAsItWouldBeWritten) {
  std::mt19937 random(617);
  for (int draw = 0; draw < 200; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4);
    const Placement placement = random() % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, 4 + static_cast<int>(random() % 12));
    Lowering lowering{Release::block, BackwardOrder::megatron, true};
    lowering.data_parallel = lowering.strategy.zero = random() % 2 == 0;
    lowering.embedding = lowering.strategy.sequence_parallel = random() % 2 == 0;
    lowering.strategy.post_validation = random() % 2 == 0;
    lowering.strategy.cp = 1 + static_cast<int>(random() % 2);
    if (random() % 3 == 0) lowering.strategy.tp_overlap = TpOverlap::domino;
    const std::vector<int> layers = random_layers(random, placement.stages());
    const Program copied = lower(schedule, layers, lowering);
    lowering.release = Release::megatron_batched;
    const Program written = lower(schedule, layers, lowering);
    ASSERT_EQ(copied.ops.size(), written.ops.size());
    ASSERT_EQ(copied.on_stream, written.on_stream);
    for (OpId id = 0; id < copied.ops.size(); ++id) {
      const Op &op = copied.ops[id], &expected = written.ops[id];
      ASSERT_EQ(op_text(copied, id), op_text(written, id));
      ASSERT_EQ(std::tuple(op.block, op.input, op.output),
                std::tuple(expected.block, expected.input, expected.output));
      std::vector<OpId> waits(written.dependencies(id).begin(), written.dependencies(id).end());
      std::erase_if(waits, [&](OpId needed) {
        return written.ops[needed].kind == OpKind::transfer &&
               written.stream_of(needed).rank == written.stream_of(id).rank;
      });
      ASSERT_THAT(copied.dependencies(id), testing::ElementsAreArray(waits)) << describe(copied, id);
    }
  }
}

}  // namespace
}  // namespace stp
