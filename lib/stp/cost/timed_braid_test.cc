// Braids by times: the best of all orders, and the end that they count on is the one of the Program.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "stp/cost/timed_braid.h"
#include "support/programs.h"

namespace stp {
namespace {

// ---- against all orders ----

using Chain = std::vector<SegmentSeconds>;

// Of some kind: with gathers or without, with weight gradients or without, some of no time.
Chain random_chain(std::mt19937& random, int segments, bool gathers, bool weights) {
  std::uniform_real_distribution<double> seconds(0, 4);
  Chain chain;
  for (int i = 0; i < segments; ++i)
    chain.push_back({.gather = gathers ? seconds(random) : 0,
                     .compute = seconds(random),
                     .reduce = random() % 4 == 0 ? 0 : seconds(random),
                     .behind = weights ? seconds(random) : 0});
  return chain;
}

// Calls work(order) with every order of two chains.
template <typename Work>
void for_every_order(size_t na, size_t nb, Work work) {
  std::vector<uint8_t> chains(na, 0);
  chains.resize(na + nb, 1);
  do {
    std::vector<BraidStep> order;
    for (const uint8_t chain : chains) order.push_back({chain});
    work(order);
  } while (std::ranges::next_permutation(chains).found);
}

TEST(TimedBraid, EndsAsEarlyAsTheBestOrder) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const Chain a = random_chain(random, static_cast<int>(random() % 6), random() % 2 == 0, false),
                b = random_chain(random, static_cast<int>(random() % 6), random() % 2 == 0,
                                 random() % 2 == 0);
    double best = std::numeric_limits<double>::infinity();
    for_every_order(a.size(), b.size(), [&](const std::vector<BraidStep>& order) {
      best = std::min(best, end_of(a, b, order).all);
    });
    EXPECT_NEAR(end_of(a, b, timed_braid(a, b)).all, best, 1e-12) << "case " << i;
  }
}

TEST(TimedBraid, OfLongChainsIsNeverLaterThanTheStaticOne) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    const Chain a = random_chain(random, 60, i % 2 == 0, false),
                b = random_chain(random, 90, i % 2 == 0, true);
    const auto evenly = static_braid(60, 90);
    EXPECT_LE(end_of(a, b, timed_braid(a, b)).all, end_of(a, b, evenly).all);
  }
}

// Forwards of a second and a half, a collective of one: the other chain's next forward hides it all.
TEST(TimedBraid, HidesCollectivesBehindTheOtherChain) {
  const Chain chain(3, {.compute = 1.5, .reduce = 1});
  EXPECT_DOUBLE_EQ(end_of(chain, chain, timed_braid(chain, chain)).compute, 9);
  EXPECT_DOUBLE_EQ(end_of(chain, chain, timed_braid(chain, chain)).all, 10);
}

// All pairings, tried one by one: what is left of both chains begins when all before has ended.
double best_pairing(const Chain& a, const Chain& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() && j == b.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  const auto end = [](Chain x, Chain y, std::vector<BraidStep> order) { return end_of(x, y, order).all; };
  if (i < a.size()) best = std::min(best, end({a[i]}, {}, {{0}}) + best_pairing(a, b, i + 1, j));
  if (j < b.size()) best = std::min(best, end({}, {b[j]}, {{1}}) + best_pairing(a, b, i, j + 1));
  if (i < a.size() && j < b.size())
    best = std::min(best, std::min(end({a[i]}, {b[j]}, {{0}, {1}}), end({b[j]}, {a[i]}, {{0}, {1}})) +
                              best_pairing(a, b, i + 1, j + 1));
  return best;
}

TEST(PairedBraid, HasTheSmallestSumOfPairsAndABarrierBetweenThem) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const bool gathers = i % 2 == 0;
    Chain a = random_chain(random, static_cast<int>(random() % 6), gathers, false),
          b = random_chain(random, static_cast<int>(random() % 6), gathers, random() % 2 == 0);
    for (Chain* chain : {&a, &b})  // those of first segments begin with the block
      if (!chain->empty()) chain->front().gather = 0;
    const std::vector<BraidStep> order = paired_braid(a, b);
    ASSERT_EQ(order.size(), a.size() + b.size());
    EXPECT_NEAR(end_of(a, b, order).all, best_pairing(a, b), 1e-9) << "case " << i;
    for (size_t step = 1; step + 1 < order.size(); ++step)
      EXPECT_TRUE(order[step].barrier || order[step + 1].barrier) << "three together";
  }
}

// ---- as a Program ----

// Positive, all different.
CostTable random_table(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.5, 4);
  CostTable table;
  for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_early, UnitPass::W_late})
      if (has_pass(unit, pass)) table.at(unit, pass) = seconds(random);
  table.all_reduce = seconds(random);
  table.reduce_scatter = seconds(random);
  table.all_gather = seconds(random);
  table.at(Unit::head, UnitPass::F) += 10;
  return table;
}

// A block between two others on one rank. The first ends with the head, which has no collective: so both
// streams are free when the braid begins, and its first all-gather is done.
TEST(SegmentSeconds, GiveTheEndThatABraidHasAsAProgram) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const int layers = 1 + static_cast<int>(random() % 4);
    CostTable table = random_table(random);
    Lowering lowering{.backward = i % 2 == 0 ? BackwardOrder::suite : BackwardOrder::megatron,
                      .strategy = {.sequence_parallel = i % 3 == 0, .recompute = {.layer = i % 5 == 0}}};
    if (i % 7 < 3) {
      lowering.strategy.cp = 2;
      lowering.strategy.cp_method = CpMethod::all_to_all;
      lowering.strategy.recompute.core = i % 7 > 0 && !lowering.strategy.recompute.layer;
      lowering.strategy.recompute.qkv = i % 7 > 1 && !lowering.strategy.recompute.layer;
      table.at(Exchange::qkv) = 0.5;
      table.at(Exchange::output) = 0.25;
      for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
        table.parts_of(Unit::attn, pass) = {
            .before = {0.5}, .core = {table.at(Unit::attn, pass)}, .after = {2}};
        table.at(Unit::attn, pass) += 2.5;
      }
      if (lowering.strategy.recompute.core)
        table.at(Unit::attn, UnitPass::I) += table.parts_of(Unit::attn, UnitPass::F).core[0];
    }
    const auto seconds = segment_seconds(table, lowering);
    const Pass backward = i % 4 == 0 ? Pass::I : Pass::B;
    Schedule schedule{.name = "a braid", .placement = Placement::loop(1, 1), .microbatches = 2};
    schedule.ranks = {{Action{Pass::F, 0, 0}, Block(Action{Pass::F, 0, 1}, Action{backward, 0, 0}),
                       Action{backward, 0, 1}}};
    if (backward == Pass::I)
      for (const int microbatch : {0, 1}) schedule.ranks[0].emplace_back(Action{Pass::W, 0, microbatch});

    std::vector<std::vector<SegmentSeconds>> chains(2);
    for (const int chain : {0, 1})
      for (const Segment& segment : segments(chain == 0 ? Pass::F : backward, layers, true, lowering.backward,
                                             {.recompute = lowering.strategy.recompute}))
        chains[chain].push_back(seconds(segment));
    const int na = static_cast<int>(chains[0].size()), nb = static_cast<int>(chains[1].size());
    const std::vector<std::pair<BraidPolicy, std::vector<BraidStep>>> orders{
        {BraidPolicy::static_merge, static_braid(na, nb)},
        {BraidPolicy::timed, timed_braid(chains[0], chains[1])},
        {BraidPolicy::paired, paired_braid(chains[0], chains[1])}};
    chains[0][0].gather = 0;
    for (const auto& [policy, order] : orders) {
      lowering.braid = policy;
      lowering.order = braid_order(policy, table, lowering);
      const Program program = lower(schedule, {layers}, lowering);
      const std::vector<double> ends = ends_of_ops(program, op_seconds(program, table));
      double begin = 0, end = 0;
      for (OpId op = 0; op < program.ops.size(); ++op) {
        if (program.stream_of(op).kind != StreamKind::compute) continue;
        if (program.ops[op].block == 0) begin = std::max(begin, ends[op]);
        if (program.ops[op].block == 1) end = std::max(end, ends[op]);
      }
      EXPECT_NEAR(end - begin, end_of(chains[0], chains[1], order).compute, 1e-9)
          << "case " << i << ", policy " << static_cast<int>(policy);
    }
  }
}

}  // namespace
}  // namespace stp
