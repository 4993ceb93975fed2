// Lowering with data parallelism: when buckets of gradients are reduced, and ZeRO-1's gathers of weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace stp
