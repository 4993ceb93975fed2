// Lowering of any schedule: how many ops, in closed form; links between ranks; the end of a step; refusals.
#include "stp/program/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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

// Lowering with data parallelism: when buckets of gradients are reduced, and ZeRO-1's gathers of weights.

// Buckets of so many units.
BucketRule units_a_bucket(int units) {
  BucketRule rule{.size = static_cast<double>(units)};
  rule.parameters.fill(1);
  return rule;
}

// ZeRO-1: every chunk that has weights gathers them once, or once a bucket, before what reads them.
TEST(Lower, GathersWeightsBeforeTheirFirstUse) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 200; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const std::vector<int> layers = random_layers(random, placement.stages());
    Lowering lowering{.release = kReleases[random() % std::size(kReleases)],
                      .strategy = {.sequence_parallel = random() % 2 == 0, .zero = true},
                      .data_parallel = true,
                      .buckets = units_a_bucket(draw % 4),
                      .embedding = true};
    if (lowering.strategy.sequence_parallel && draw % 3 == 0) {
      lowering.strategy.tp_overlap = TpOverlap::megatron;
      lowering.strategy.tp = 2;
    }
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 4));
    const Program program = lower(schedule, layers, lowering);
    int of_chunks = 0;
    for (int stage = 0; stage < placement.stages(); ++stage)
      if (layers[stage] > 0 || stage == 0 || stage + 1 == placement.stages())
        of_chunks += std::max(1, static_cast<int>(program.buckets(stage).size()));
    auto counts = count(program);
    EXPECT_EQ(counts["weight gather"], of_chunks);
    EXPECT_EQ(counts["gradient scatter"], of_chunks);
    EXPECT_EQ(counts["gradient reduction"], 0);
    std::map<OpId, std::vector<char>> after;  // by gather
    for (OpId op = 0; op < program.ops.size(); ++op)
      if (program.ops[op].kind == OpKind::weight_gather) after[op] = Order(program).after(op);
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const Op& reader = program.ops[op];
      if (reader.kind != OpKind::compute && reader.kind != OpKind::all_gather) continue;
      const auto buckets = program.buckets(program.stage_of(op));
      EXPECT_TRUE(std::ranges::any_of(after, [&](const auto& each) {
        const OpId gather = each.first;
        return each.second[op] && program.ops[gather].chunk == reader.chunk &&
               program.stream_of(gather).rank == program.stream_of(op).rank &&
               (buckets.empty() || buckets[program.ops[gather].step].has(reader.unit, reader.layer));
      })) << describe(program, op);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw << "\n" << to_text(schedule);
  }
}

// Whether an op adds to gradients of its unit: of weights, or of the norm's gain.
bool makes_gradients(const Program& program, const Op& op) {
  if (op.kind == OpKind::weight_gradients) return true;
  if (op.kind == OpKind::reduce_scatter) return op.unit_pass == UnitPass::I;
  if (op.kind != OpKind::compute || op.unit_pass == UnitPass::F) return false;
  return op.unit_pass != UnitPass::I || !program.strategy.sequence_parallel || op.unit == Unit::head;
}

// The dependencies of each op of a chunk's gradients or weights, and of the ops that wait for weights.
Texts of_buckets(const Program& program) {
  Texts found;
  for (OpId op = 0; op < program.rank_begin[1]; ++op) {
    const OpKind kind = program.ops[op].kind;
    for (const OpId needed : program.dependencies(op))
      if (kind == OpKind::gradient_reduce || kind == OpKind::gradient_scatter ||
          program.ops[needed].kind == OpKind::weight_gather)
        found.push_back(describe_op(program, op) + ": " + describe_op(program, needed));
  }
  return found;
}

TEST(Lower, ReducesTheFirstStageBucketByBucketAsItsLastBackwardFillsThem) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  Lowering lowering{.data_parallel = true, .buckets = units_a_bucket(2), .embedding = true};
  const Program program = lower(schedule, {2, 1}, lowering);
  EXPECT_THAT(of_buckets(program), ElementsAre("gradients of chunk 0, bucket 0: attn.W of B0.1, layer 1",
                                               "gradients of chunk 0, bucket 1: attn.W of B0.1, layer 0",
                                               "gradients of chunk 0, bucket 2: embedding.W of B0.1"));
  EXPECT_EQ(count(program)["gradient reduction"], 3 + 1);  // those of the last stage at once
  lowering.strategy.zero = lowering.strategy.sequence_parallel = true;
  EXPECT_THAT(of_buckets(lower(schedule, {2, 1}, lowering)),
              ElementsAre("embedding.F of F0.0: weights of chunk 0, bucket 2",
                          "all-gather of attn.F of F0.0, layer 0: weights of chunk 0, bucket 1",
                          "all-gather of attn.F of F0.0, layer 1: weights of chunk 0, bucket 0",
                          "gradients of chunk 0, bucket 0: attn.W of B0.1, layer 1",
                          "gradients of chunk 0, bucket 0: reduce-scatter of attn.I of B0.1, layer 1",
                          "gradients of chunk 0, bucket 1: attn.W of B0.1, layer 0",
                          "gradients of chunk 0, bucket 1: reduce-scatter of attn.I of B0.1, layer 0",
                          "gradients of chunk 0, bucket 2: embedding.W of B0.1"));
  lowering.buckets.size = 100;
  EXPECT_TRUE(lower(schedule, {2, 1}, lowering).first_buckets.empty());
  lowering = {.buckets = units_a_bucket(1), .embedding = true};  // of one replica
  EXPECT_TRUE(lower(schedule, {2, 1}, lowering).first_buckets.empty());
}

// Every op that adds to a bucket's gradients, of any microbatch, is done before they are reduced.
TEST(Lower, ReducesABucketBehindAllThatAddsToIt) {
  std::mt19937 random(514);
  for (int draw = 0; draw < 300; ++draw) {
    const int p = 1 + static_cast<int>(random() % 3);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 1 + draw % 3);
    std::vector<int> layers = random_layers(random, placement.stages());
    Lowering lowering{.release = kReleases[random() % std::size(kReleases)],
                      .backward = random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                      .optimizer = true,
                      .strategy = {.sequence_parallel = random() % 2 == 0,
                                   .recompute = kRecomputes[random() % std::size(kRecomputes)].choice,
                                   .zero = random() % 2 == 0},
                      .data_parallel = true,
                      .buckets = units_a_bucket(1 + draw % 3),
                      .embedding = true};
    if (draw % 5 == 0 && placement.stages() > 1) {
      layers[0] = 0;
      lowering.vision_layers = 2;
      lowering.strategy.sequence_parallel = false;
    }
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 4));
    const Program program = lower(schedule, layers, lowering);
    const int first = placement.rank_of(0);
    const Order order(program);
    size_t reductions = 0;
    for (OpId op = program.rank_begin[first]; op < program.rank_begin[first + 1]; ++op) {
      const Op& reduction = program.ops[op];
      const bool reduces =
          reduction.kind == OpKind::gradient_reduce || reduction.kind == OpKind::gradient_scatter;
      if (!reduces || program.stage_of(op) != 0 || program.first_buckets.empty()) continue;
      EXPECT_EQ(reduction.step, reductions++);
      for (OpId maker = program.rank_begin[first]; maker < program.rank_begin[first + 1]; ++maker) {
        const Op& made = program.ops[maker];
        if (makes_gradients(program, made) && program.stage_of(maker) == 0 &&
            program.first_buckets[reduction.step].has(made.unit, made.layer)) {
          EXPECT_TRUE(order.after(maker)[op]) << describe(program, maker);
        }
      }
    }
    EXPECT_EQ(reductions, program.first_buckets.size());
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw << "\n" << to_text(schedule);
  }
}

// Lowering of a vision encoder: its place on the first virtual stage, its ops, and what is refused.

TEST(Lower, PutsAVisionEncoderOnTheFirstStage) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "I0.0", "W0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {0, 1}, {.embedding = true, .vision_layers = 1});
  Texts first;
  for (OpId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    first.push_back(op_text(program, id));
  EXPECT_THAT(first,
              ElementsAre("F0.0: patches.F0", "F0.0: vision_attn.F0", "F0.0: AR vision_attn.F0",
                          "F0.0: vision_mlp.F0", "F0.0: AR vision_mlp.F0", "F0.0: merger.F0",
                          "F0.0: AR merger.F0", "F0.0: embedding.F", "F0.0: AR embedding.F",
                          "F0.0: send 1 to 1", "I0.0: merger.I0", "I0.0: AR merger.I0", "I0.0: vision_mlp.I0",
                          "I0.0: AR vision_mlp.I0", "I0.0: vision_attn.I0", "I0.0: AR vision_attn.I0",
                          "W0.0: embedding.W both", "W0.0: merger.W both0", "W0.0: vision_mlp.W both0",
                          "W0.0: vision_attn.W both0", "W0.0: patches.W both0"));
  EXPECT_THAT(waits_of(program, 0, "I0.0: merger.I0"), Contains("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), Contains("0 F0.0: AR merger.F0"));
  EXPECT_THAT(waits_of(program, 0, "W0.0: patches.W both0"), Contains("0 I0.0: AR vision_attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "W0.0: embedding.W both"), Not(Contains("0 I0.0: AR vision_attn.I0")));
}

TEST(Lower, PutsTheEmbeddingsGradientBeforeTheBackwardOfAVisionEncoder) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const Program program =
      lower(schedule, {0, 1}, {.backward = BackwardOrder::megatron, .embedding = true, .vision_layers = 1});
  Texts backward;
  for (OpId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    if (program.ops[id].pass == Pass::B) backward.push_back(op_text(program, id).substr(6));
  EXPECT_THAT(backward, ElementsAre("embedding.W both", "merger.I0", "merger.W_early0", "AR merger.I0",
                                    "merger.W0", "vision_mlp.I0", "vision_mlp.W_early0", "AR vision_mlp.I0",
                                    "vision_mlp.W0", "vision_attn.I0", "vision_attn.W_early0",
                                    "AR vision_attn.I0", "vision_attn.W0", "patches.W both0"));
}

TEST(Lower, RefusesLayersOnTheStageOfAVisionEncoder) {
  const auto refused = [](const Placement& placement, const std::vector<int>& layers) {
    std::mt19937 random(1);
    const Schedule schedule = random_schedule(random, placement, 1);
    return refusal([&] { lower(schedule, layers, {.embedding = true, .vision_layers = 3}); });
  };
  EXPECT_THAT(refused(Placement::loop(2, 1), {1, 1}),
              HasSubstr("begins with 1, but the first virtual stage is"));
  EXPECT_THAT(refused(Placement::loop(1, 1), {2}),
              HasSubstr("the vision encoder is a virtual stage of its own"));
}

}  // namespace
}  // namespace stp
