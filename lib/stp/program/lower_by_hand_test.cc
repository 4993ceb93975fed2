// Lowering of small schedules written out by hand: which ops there are, what each of them waits for, and what
// messages call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The ops of a unit and pass, in order.
Texts ops_of(const Program& program, Unit unit, Pass pass) {
  Texts texts;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].unit == unit && program.ops[op].pass == pass)
      texts.push_back(op_text(program, op).substr(6));
  return texts;
}

TEST(LowerByHand, HalvesOfAMicrobatchAreBraidedAndWhatWasBraidedRunsInTurn) {
  const Schedule halves = split_microbatches(two_ranks());
  EXPECT_EQ(halves.microbatches, 4);
  EXPECT_EQ(to_text(halves),
            "# schedule by hand, placement loop\n"
            "F0.0&F0.1 F0.2&F0.3 B0.0&B0.1 I0.2&I0.3 W0.2&W0.3\n"
            "F0.0&F0.1 F0.2&F0.3 B0.0&B0.1 B0.2&B0.3\n");
  Lowering lowering{.strategy = {.tp_overlap = TpOverlap::domino}};
  const Program program = lower(two_ranks(), {1, 1}, lowering);
  EXPECT_EQ(to_text(program.schedule), to_text(halves));
  EXPECT_THAT(waits_of(program, 0, "F0.2: send 1 to 1"), ElementsAre("0 F0.2: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.3: send 1 to 1"), ElementsAre("0 F0.3: AR mlp.F0"));
  // The published trainer runs two forwards one after the other, but these are one; and one transfer.
  lowering.release = Release::released;
  const Program released = lower(two_ranks(), {1, 1}, lowering);
  EXPECT_THAT(waits_of(released, 0, "F0.3: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(released, 0, "F0.2: send 2 to 1"), ElementsAre("0 F0.3: mlp.F0", "0 F0.3: AR mlp.F0"));
  EXPECT_THAT(waits_of(released, 1, "B0.0: send 2 to 0"),
              ElementsAre("1 B0.1: attn.W both0", "1 B0.1: AR attn.I0"));
}

TEST(LowerByHand, SequenceParallelismHidesTheReduceScatterBehindWeightGradientsAndNotTheAllGather) {
  const Schedule schedule = by_hand(Placement::loop(1, 1), 2, {{"F0.0", "B0.0", "F0.1", "I0.1", "W0.1"}});
  const Lowering lowering{.backward = BackwardOrder::megatron,
                          .optimizer = true,
                          .strategy = {.sequence_parallel = true},
                          .embedding = true};
  const Program program = lower(schedule, {1}, lowering);
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.0: AG attn.F0"), ElementsAre("0 F0.0: embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: attn.F0"), ElementsAre("0 F0.0: AG attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: RS attn.F0"), ElementsAre("0 F0.0: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: AG mlp.F0"), ElementsAre("0 F0.0: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: head.F"), ElementsAre("0 F0.0: AG head.F"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG mlp.I0"), ElementsAre("0 B0.0: head.W both"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: RS mlp.I0"), ElementsAre("0 B0.0: mlp.W_early0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG attn.I0"), ElementsAre("0 B0.0: mlp.W0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG embedding.W"), ElementsAre("0 B0.0: attn.W0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: embedding.W both"), ElementsAre("0 B0.0: AG embedding.W"));
  // W gathers what I left at once, and needs it at its end.
  EXPECT_THAT(waits_of(program, 0, "W0.1: AG embedding.W"), ElementsAre("0 I0.1: RS attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "W0.1: head.W both"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "W0.1: embedding.W both"), ElementsAre("0 W0.1: AG embedding.W"));
  EXPECT_THAT(waits_of(program, 0, "optimizer"), ElementsAre("0 I0.1: RS attn.I0"));
  const Program plain = lower(schedule, {1}, {.backward = BackwardOrder::megatron, .embedding = true});
  auto with = count(program), without = count(plain);
  const std::map<std::string, int> gathers{{"F", 2 * 3}, {"B", 3}, {"I", 2}, {"W", 1}};
  for (const auto& [pass, expected] : gathers) {
    EXPECT_EQ(with["all-reduce in " + pass], 0);
    EXPECT_EQ(with["reduce-scatter in " + pass], without["all-reduce in " + pass]);
    EXPECT_EQ(with["all-gather in " + pass], expected);
  }
}

TEST(LowerByHand, SequenceParallelismGathersWhatComesFromAnotherRankBeforeTheBlock) {
  for (const Release release : kReleases) {
    const Program program =
        lower(two_ranks(), {1, 1},
              {.release = release, .strategy = {.sequence_parallel = true}, .embedding = true});
    EXPECT_THAT(waits_of(program, 0, "F0.0: send 1 to 1"), testing::Contains("0 F0.0: RS mlp.F0"));
    EXPECT_THAT(waits_of(program, 1, "F0.1: AG attn.F0"), testing::Contains("0 F0.1: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), testing::Contains("1 F0.1: AG attn.F0"));
  }
}

// The sends of its own rank that each block's first op waits for, as the numbers of their blocks.
std::vector<std::vector<int>> blocks_waited_for(const Program& program, int rank) {
  std::vector<std::vector<int>> waited(program.schedule.ranks[rank].size());
  std::vector<bool> seen(waited.size(), false);
  for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
    const int block = program.ops[op].block;
    if (block < 0 || program.ops[op].kind == OpKind::transfer || seen[block]) continue;
    seen[block] = true;
    for (const OpId needed : program.dependencies(op))
      if (program.ops[needed].kind == OpKind::transfer && needed >= program.rank_begin[rank] &&
          needed < program.rank_begin[rank + 1])
        waited[block].push_back(program.ops[needed].block);
  }
  for (std::vector<int>& blocks : waited) std::ranges::sort(blocks);
  return waited;
}

// Megatron-Core waits for a send when it has posted the next one of the same direction; in warm-up and flush
// at once; with batches of transfers, which one chunk a rank always has, at once.
TEST(LowerByHand, MegatronsReleasesWaitForSendsAsItsLoopDoes) {
  // Megatron-Core's interleaved order. Rank 0's B0 and rank 1's F1 send nothing.
  const Schedule two_chunks =
      by_hand(Placement::loop(2, 2), 4,
              {{"F0.0", "F0.1", "F1.0", "F1.1", "F0.2", "B1.0", "F0.3", "B1.1", "F1.2", "B0.0", "F1.3",
                "B0.1", "B1.2", "B1.3", "B0.2", "B0.3"},
               {"F0.0", "F0.1", "F1.0", "B1.0", "F1.1", "I1.1", "W1.1", "F0.2", "B0.0", "F0.3", "B0.1",
                "F1.2", "B1.2", "F1.3", "B1.3", "B0.2", "B0.3"}});
  const Schedule one_chunk =
      by_hand(Placement::loop(3, 1), 4,
              {{"F0.0", "F0.1", "F0.2", "B0.0", "F0.3", "B0.1", "B0.2", "B0.3"},
               {"F0.0", "F0.1", "B0.0", "F0.2", "I0.1", "W0.1", "F0.3", "B0.2", "B0.3"},
               {"F0.0", "B0.0", "F0.1", "B0.1", "F0.2", "B0.2", "F0.3", "B0.3"}});
  const auto waited = [](const Schedule& schedule, Release release, int rank) {
    const std::vector<int> layers(schedule.placement.stages(), 1);
    return blocks_waited_for(lower(schedule, layers, {.release = release}), rank);
  };
  using Blocks = std::vector<std::vector<int>>;
  EXPECT_EQ(waited(two_chunks, Release::megatron, 0),
            (Blocks{{}, {0}, {1}, {2}, {3}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {}, {12}, {13}, {}}));
  EXPECT_EQ(
      waited(two_chunks, Release::megatron_0_18, 0),
      (Blocks{{}, {0}, {1}, {2}, {3}, {2, 4}, {3}, {4, 6}, {5}, {6, 8}, {7}, {8, 10}, {}, {12}, {13}, {}}));
  // Block 6 is a W.
  EXPECT_EQ(waited(two_chunks, Release::megatron, 1),
            (Blocks{{}, {0}, {1}, {0}, {1}, {}, {}, {3}, {}, {5}, {7}, {8}, {9}, {10}, {}, {14}, {15}}));
  EXPECT_EQ(waited(two_chunks, Release::released, 1),
            (Blocks{{}, {0}, {1}, {}, {3}, {}, {}, {}, {7}, {8}, {9}, {10}, {}, {12}, {}, {14}, {15}}));
  EXPECT_EQ(waited(two_chunks, Release::megatron_batched, 1),
            (Blocks{{}, {0}, {1}, {}, {3}, {}, {5}, {}, {7}, {8}, {9}, {10}, {}, {12}, {}, {14}, {15}}));
  // The middle rank of three sends both ways.
  for (const Release release : {Release::megatron, Release::megatron_0_18, Release::megatron_batched})
    EXPECT_EQ(waited(one_chunk, release, 1), (Blocks{{}, {0}, {1}, {2}, {3}, {4}, {}, {6}, {7}}));
  EXPECT_EQ(waited(one_chunk, Release::released, 1), (Blocks{{}, {0}, {1}, {2}, {3}, {}, {}, {6}, {7}}));
}

TEST(LowerByHand, TheEmbeddingIsOnTheFirstVirtualStageAloneAndItsGradientWaitsForTheLastAllReduce) {
  const Schedule schedule = by_hand(
      Placement::v(2), 1, {{"F0.0", "F1.0", "I1.0", "W1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1, 1, 1}, {.embedding = true});
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.0: AR embedding.F"), ElementsAre("0 F0.0: embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: attn.F0"), ElementsAre("0 F0.0: AR embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: embedding.W both"), ElementsAre("0 B0.0: AR attn.I0"));
  const Program plain = lower(schedule, {1, 1, 1, 1}, {});
  EXPECT_EQ(program.ops.size(), plain.ops.size() + 3);
}

TEST(LowerByHand, ARecomputedLayerWaitsForTheGradientAndItsBackwardForIt) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1}, {.strategy = {.recompute = {.layer = true}}});
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.F0"), ElementsAre("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.F0"), ElementsAre("0 B0.0: AR attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"), ElementsAre("0 B0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"), ElementsAre("1 B0.0: AR attn.I0"));
  EXPECT_EQ(count(program)["all-reduce in B"], 8);
}

TEST(LowerByHand, OnlyTheFirstLayersOfEachChunkAreRecomputedIfTheirNumberIsGiven) {
  const Program program =
      lower(one_rank({"F0.0", "B0.0"}), {3}, {.strategy = {.recompute = {.layer = true, .first = 2}}});
  std::vector<int> again;
  for (const Op& op : program.ops)
    if (op.recomputed() && op.kind == OpKind::compute && op.unit == Unit::attn) again.push_back(op.layer);
  EXPECT_THAT(again, ElementsAre(1, 0));
}

TEST(LowerByHand, RecomputedPartsOfUnitsAreInsideTheirOps) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}});
  for (const bool sequence_parallel : {false, true}) {
    const auto ops = [&](const Recompute& recompute) {
      const Program program = lower(
          schedule, {1, 1}, {.strategy = {.sequence_parallel = sequence_parallel, .recompute = recompute}});
      std::vector<std::string> all;
      for (OpId op = 0; op < program.ops.size(); ++op) all.push_back(describe(program, op));
      return std::pair(all, program.depends);
    };
    for (const auto& [name, recompute] : kRecomputes) {
      EXPECT_EQ(ops(recompute) == ops({}), !recompute.layer) << name;
    }
  }
}

TEST(LowerByHand, ARecomputedCoreFindsQKAndVWhereTheyAreUnlessTheyAreRecomputedToo) {
  Lowering lowering{.backward = BackwardOrder::megatron,
                    .strategy = {.cp = 4, .cp_method = CpMethod::all_to_all, .recompute = {.core = true}}};
  EXPECT_THAT(
      ops_of(lower(one_rank({"F0.0", "B0.0"}), {1}, lowering), Unit::attn, Pass::B),
      ElementsAre("attn.I_before0", "attn.F_core0", "A2A attn.F0, 2", "A2A attn.I0, 1", "attn.I_core0",
                  "A2A attn.I0, 2", "attn.I_after0", "attn.W_early0", "AR attn.I0", "attn.W0"));
  lowering.strategy.recompute.qkv = true;
  EXPECT_THAT(ops_of(lower(one_rank({"F0.0", "B0.0"}), {1}, lowering), Unit::attn, Pass::B)[1],
              "A2A attn.F0, 1");
}

TEST(LowerByHand, OverlapPutsExchangesAndPiecesOfSumsBesideTheStepsOfAUnit) {
  const Schedule schedule = one_rank({"F0.0", "B0.0"});
  Lowering lowering{.backward = BackwardOrder::megatron,
                    .strategy = {.tp = 3, .sequence_parallel = true, .tp_overlap = TpOverlap::megatron}};
  const Program program = lower(schedule, {1}, lowering);
  EXPECT_THAT(ops_of(program, Unit::attn, Pass::F),
              ElementsAre("attn.F_norm0", "rows attn.F0, 1", "attn.F_before0, step 0", "rows attn.F0, 2",
                          "attn.F_before0, step 1", "attn.F_before0, step 2", "attn.F_core0",
                          "attn.F_after0, step 0", "RS attn.F0, piece 0", "attn.F_after0, step 1",
                          "RS attn.F0, piece 1", "attn.F_after0, step 2", "RS attn.F0, piece 2",
                          "attn.F_after0, step 3", "RS attn.F0, piece 3"));
  EXPECT_THAT(ops_of(program, Unit::mlp, Pass::B),
              ElementsAre("rows mlp.I0, 1", "mlp.I_before0, step 0", "rows mlp.I0, 2",
                          "mlp.I_before0, step 1", "mlp.I_before0, step 2", "mlp.I_core0", "mlp.I_after0",
                          "mlp.W_early0", "RS mlp.I0", "mlp.W0"));
  // What steps and pieces wait for: simulate_test.cc, in closed form.
  EXPECT_THAT(waits_of(program, 0, "F0.0: AG head.F"), ElementsAre("0 F0.0: mlp.F_after0, step 3"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: rows mlp.I0, 1"), ElementsAre("0 B0.0: head.W both"));
  // What copy engines carry, or SMs that are set aside, slows no GEMM.
  const auto of_tp_that_contend = [&](const Program& in) {
    Texts texts;
    for (OpId op = 0; op < in.ops.size(); ++op)
      if (in.stream_of(op).kind == StreamKind::tp && in.contends(op)) texts.push_back(op_text(in, op));
    return texts;
  };
  EXPECT_THAT(of_tp_that_contend(program), ElementsAre("F0.0: AG head.F"));
  const Program apart = lower(one_rank({"F0.0", "I0.0", "W0.0"}), {1}, lowering);
  EXPECT_THAT(of_tp_that_contend(apart),
              ElementsAre("F0.0: AG head.F", "I0.0: RS mlp.I0", "I0.0: RS attn.I0"));
  for (OpId op = 0; op < program.ops.size(); ++op)
    EXPECT_TRUE(program.contends(op) || program.ops[op].kind != OpKind::compute);
  // One rank has nothing to exchange.
  lowering.strategy.tp = 1;
  const Program alone = lower(schedule, {1}, lowering);
  for (OpId op = 0; op < alone.ops.size(); ++op) EXPECT_TRUE(alone.contends(op));
  Lowering plain = lowering;
  plain.strategy.tp_overlap = TpOverlap::none;
  const auto same = [&](const Program& a, const Program& b) {
    for (OpId op = 0; op < a.ops.size(); ++op)
      if (op_text(a, op) != op_text(b, op)) return false;
    return a.ops.size() == b.ops.size();
  };
  EXPECT_TRUE(same(lower(schedule, {1}, lowering), lower(schedule, {1}, plain)));
}

TEST(LowerByHand, ARecomputedCoreGoesRoundTheRingBeforeItsBackwardDoes) {
  const Program program =
      lower(one_rank({"F0.0", "I0.0", "W0.0"}), {1}, {.strategy = {.cp = 2, .recompute = {.core = true}}});
  EXPECT_THAT(ops_of(program, Unit::attn, Pass::I),
              ElementsAre("attn.I_before0", "KV attn.F0, 1", "attn.F_core0, step 0", "attn.F_core0, step 1",
                          "KV attn.I0, 1", "attn.I_core0, step 0", "dKV attn.I0, 1", "attn.I_core0, step 1",
                          "dKV attn.I0, 2", "attn.I_after0", "AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "I0.0: KV attn.I0, 1"), ElementsAre("0 I0.0: attn.F_core0, step 1"));
}

TEST(Program, DescribesItsOpsByRankStreamAndAction) {
  const Program program = lower(two_ranks(), {1, 2}, {Release::chain, BackwardOrder::megatron, true});
  std::set<std::string> texts;
  for (OpId op = 0; op < program.ops.size(); ++op) texts.insert(describe(program, op));
  for (const char* text :
       {"rank 1, compute, mlp.I of B0.0, layer 1", "rank 1, compute, mlp.W_early of B0.0, layer 1",
        "rank 1, tp, all-reduce of attn.I of B0.0, layer 0", "rank 0, compute, mlp.W of W0.1, layer 0",
        "rank 0, p2p, transfer to rank 1 of F0.1", "rank 1, compute, head.F of F0.1",
        "rank 0, compute, optimizer"})
    EXPECT_TRUE(texts.contains(text)) << text;
}

}  // namespace
}  // namespace stp
