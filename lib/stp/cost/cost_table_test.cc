// Cost tables: those of unit costs, the seconds of ops, and the costs of passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/cost/unit_costs.h"
#include "stp/program/lower.h"
#include "support/jobs.h"
#include "support/programs.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// ---- unit tables ----

CostTable unit_table(const json& value, const Strategy& strategy = {}) {
  return unit_cost_table(JsonInput(value, "s.json", "costs.unit"), strategy);
}
// Attention in parts, and what an exchange takes.
CostTable table_in_parts(const std::string& exchange, double seconds, const Strategy& strategy) {
  return unit_table({{"attn.F_before", 1},
                     {"attn.F_core", 2},
                     {"attn.F_after", 4},
                     {"attn.I_before", 8},
                     {"attn.I_core", 16},
                     {"attn.I_after", 32},
                     {exchange, seconds}},
                    strategy);
}
CostTable ring_table(double exchange) { return table_in_parts("kv_exchange", exchange, {.cp = 3}); }
// Of sequences that four ranks share.
constexpr Strategy kHeadsOfFour{.cp = 4, .cp_method = CpMethod::all_to_all};
CostTable all_to_all_table() { return table_in_parts("all_to_all", 64, kHeadsOfFour); }

TEST(UnitCostTable, PutsEveryKeyInItsOwnPlace) {
  const json all = {{"attn.F", 1}, {"attn.I", 2},          {"attn.W", 3},  {"attn.W_early", 4},
                    {"mlp.F", 5},  {"mlp.I", 6},           {"mlp.W", 7},   {"mlp.W_early", 8},
                    {"head.F", 9}, {"head.I", 10},         {"head.W", 11}, {"all_reduce", 12},
                    {"p2p", 13},   {"gradient_reduce", 14}};
  const CostTable table = unit_table(all);
  for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
    for (const UnitPass pass : kUnitPasses)
      EXPECT_EQ(table.at(unit, pass), has_pass(unit, pass) ? all.at(to_string(unit, pass)).get<double>() : 0);
  EXPECT_EQ(table.all_reduce, 12);
  EXPECT_EQ(table.transfer_within_node, 13);
  EXPECT_EQ(table.transfer_between_nodes, 13);
  EXPECT_EQ(table.gradient_reduce_per_layer, 14);
  EXPECT_EQ(table.weight_gradients(Unit::attn), 7);
  EXPECT_EQ(table.weight_gradients(Unit::mlp), 15);
  EXPECT_EQ(table.weight_gradients(Unit::head), 11);
  EXPECT_THAT(table.node_of_rank, IsEmpty());
  EXPECT_THAT(table.optimizer, IsEmpty());
}

TEST(UnitCostTable, IsZeroWhereLeftOut) {
  const CostTable table = unit_table(json::object());
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses) EXPECT_EQ(table.at(unit, pass), 0);
  EXPECT_EQ(table.all_reduce + table.transfer_within_node + table.transfer_between_nodes, 0);
}

TEST(UnitCostTable, HasThePartsOfAttnWithContextParallelismInPlaceOfTheWhole) {
  const CostTable table = ring_table(7);
  const CostTable::Parts &forward = table.parts_of(Unit::attn, UnitPass::F),
                         &backward = table.parts_of(Unit::attn, UnitPass::I);
  EXPECT_THAT(forward.before, ElementsAre(1));
  EXPECT_THAT(forward.core, ElementsAre(2, 2, 2));
  EXPECT_THAT(forward.after, ElementsAre(4));
  EXPECT_THAT(backward.before, ElementsAre(8));
  EXPECT_THAT(backward.core, ElementsAre(16, 16, 16));
  EXPECT_THAT(backward.after, ElementsAre(32));
  EXPECT_EQ(table.at(Exchange::kv), 7);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::F), 1 + 3 * 2 + 4);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::I), 8 + 3 * 16 + 32);
  EXPECT_THAT(refusal([] {
                unit_table({{"attn.F", 1}}, {.cp = 2});
              }),
              HasSubstr("attn.F: is given, but parallel.cp divides it; write attn.F_before"));
  EXPECT_THAT(refusal([] {
                unit_table({{"kv_exchange", 1}});
              }),
              HasSubstr("kv_exchange: is not a known field"));
}

TEST(UnitCostTable, HasOneStepOfTheCoreWhereHeadsAreExchanged) {
  const CostTable table = all_to_all_table();
  EXPECT_THAT(table.parts_of(Unit::attn, UnitPass::F).core, ElementsAre(2));
  EXPECT_EQ(table.at(Unit::attn, UnitPass::I), 8 + 16 + 32);
  EXPECT_EQ(table.at(Exchange::qkv), 64);
  EXPECT_EQ(table.at(Exchange::output), 64);
  EXPECT_THAT(refusal([] {
                unit_table({{"kv_exchange", 1}}, kHeadsOfFour);
              }),
              HasSubstr("kv_exchange: is not a known field"));
  EXPECT_THAT(refusal([] {
                unit_table({{"all_to_all", 1}}, {.cp = 4});
              }),
              HasSubstr("all_to_all: is not a known field"));
}

TEST(UnitCostTable, RefusesWhatItDoesNotKnowAndWhatIsNoTime) {
  const auto refuses = [](const std::string& key, const json& value, const std::string& why) {
    EXPECT_THAT(refusal([&] {
                  unit_table({{key, value}});
                }),
                testing::AllOf(testing::StartsWith("s.json: costs.unit." + key + ": "), HasSubstr(why)));
  };
  refuses("attn.f", 1, "did you mean \"attn.F\"?");
  refuses("head.W_early", 1, "not a known field");
  refuses("patches.F", 1, "not a known field");
  refuses("attn.F", {1, 2}, "has 2 entries for 1 ranks");
  refuses("attn.B", 1, "not a known field");
  refuses("attn.F", -1, "out of range");
  refuses("all_reduce", 1e10, "out of range");
  refuses("p2p", "1", "must be a number");
}

TEST(UnitCostTable, TakesANumberForEachRank) {
  const std::string rank = "E0.0 F0.0 S0.0 B0.0 U0.0 G0.0";
  const json costs{{"attn.F", {1, 2}}, {"head.W", {3, 5}}, {"embedding.F", {7, 11}}, {"vocabulary", 0.5}};
  const CostTable table = unit_cost_table(JsonInput(costs, "s.json"), {.pp = 2});
  EXPECT_EQ(table.at(Unit::attn, UnitPass::F), 1.5);
  const Program program =
      lower(schedule_from_text("# placement loop\n" + rank + "\n" + rank + "\n", "x.txt"), {1, 1}, {});
  const std::vector<double> seconds = op_seconds(program, table);
  std::map<std::string, double> found;
  for (OpId op = 0; op < seconds.size(); ++op)
    if (seconds[op] > 0) found[describe(program, op)] = seconds[op];
  const std::map<std::string, double> expected{{"rank 0, compute, attn.F of F0.0, layer 0", 1},
                                               {"rank 1, compute, attn.F of F0.0, layer 0", 2},
                                               {"rank 0, compute, head.W of U0.0", 3},
                                               {"rank 1, compute, head.W of U0.0", 5},
                                               {"rank 0, compute, embedding.F of E0.0", 7},
                                               {"rank 1, compute, embedding.F of E0.0", 11},
                                               {"rank 0, vocabulary, sum over all ranks of E0.0", 0.5},
                                               {"rank 1, vocabulary, sum over all ranks of S0.0", 0.5},
                                               {"rank 1, vocabulary, broadcast of F0.0", 0.5},
                                               {"rank 0, vocabulary, broadcast of B0.0", 0.5}};
  EXPECT_EQ(found, expected);
}

TEST(Lower, RefusesWhatIsNotBuiltWithTheVocabularyOnAllRanks) {
  const Schedule shared = schedule_from_text("# placement loop\nE0.0 F0.0 S0.0 U0.0 B0.0 G0.0\n", "x.txt");
  for (const Lowering& lowering : {Lowering{.strategy = {.zero = true}, .data_parallel = true},
                                   Lowering{.tied = true}, Lowering{.strategy = {.post_validation = true}}})
    EXPECT_THAT(refusal([&] { lower(shared, {1}, lowering); }), HasSubstr("vocabulary on all ranks"));
}

// ---- seconds of ops ----

// p = 2 on a V, one microbatch: every kind of op, chunks of one layer.
Program small_program(const Lowering& lowering) {
  const std::vector<std::string> blocks{"F0.0", "F1.0", "B1.0", "I0.0", "W0.0"};
  return lower(schedule_of(Placement::v(2), 1, {blocks, blocks}), {1, 1, 1, 1}, lowering);
}

CostTable distinct_table() {
  CostTable table;
  double next = 1;
  for (auto& unit : table.unit)
    for (double& pass : unit) pass = next *= 2;  // sums of different entries differ
  table.all_reduce = 0.5;
  table.reduce_scatter = 0.375;
  table.all_gather = 0.3125;
  table.transfer_within_node = 0.25;
  table.transfer_between_nodes = 0.125;
  table.optimizer = {1000, 2000};
  return table;
}

TEST(OpSeconds, AreTheTablesByKindUnitAndPass) {
  const std::map<OpKind, double> by_kind{{OpKind::all_reduce, 0.5},
                                         {OpKind::reduce_scatter, 0.375},
                                         {OpKind::all_gather, 0.3125},
                                         {OpKind::transfer, 0.25}};  // no nodes given: all on one
  for (const bool sequence_parallel : {false, true}) {
    const BackwardOrder order = sequence_parallel ? BackwardOrder::megatron : BackwardOrder::suite;
    const Program program = small_program(
        {.backward = order, .optimizer = true, .strategy = {.sequence_parallel = sequence_parallel}});
    const CostTable table = distinct_table();
    const std::vector<double> seconds = op_seconds(program, table);
    ASSERT_EQ(seconds.size(), program.ops.size());
    for (OpId id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      ASSERT_TRUE(op.kind == OpKind::compute || op.kind == OpKind::weight_gradients ||
                  op.kind == OpKind::optimizer || by_kind.contains(op.kind))
          << describe(program, id);
      const double expected = op.kind == OpKind::compute            ? table.at(op.unit, op.unit_pass)
                              : op.kind == OpKind::weight_gradients ? table.weight_gradients(op.unit)
                              : op.kind == OpKind::optimizer ? table.optimizer[program.stream_of(id).rank]
                                                             : by_kind.at(op.kind);
      EXPECT_EQ(seconds[id], expected) << describe(program, id);
    }
  }
}

TEST(OpSeconds, OfARingAreThoseOfItsPartsAndExchanges) {
  CostTable table = ring_table(7);
  table.parts_of(Unit::attn, UnitPass::F).core.front() = 3;
  const Program program = small_program({.strategy = {.cp = 3}});
  const std::vector<double> seconds = op_seconds(program, table);
  std::map<std::string, double> by_name;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const Op& each = program.ops[op];
    if (each.kind == OpKind::exchange) {
      EXPECT_EQ(seconds[op], 7) << describe(program, op);
    }
    if (each.part != UnitPart::whole)
      by_name[to_string(each.unit, each.unit_pass) + suffix(each.part) + std::to_string(each.step)] =
          seconds[op];
  }
  EXPECT_THAT(by_name,
              ElementsAre(Pair("attn.F_after0", 4), Pair("attn.F_before0", 1), Pair("attn.F_core0", 3),
                          Pair("attn.F_core1", 2), Pair("attn.F_core2", 2), Pair("attn.I_after0", 32),
                          Pair("attn.I_before0", 8), Pair("attn.I_core0", 16), Pair("attn.I_core1", 16),
                          Pair("attn.I_core2", 16)));
}

TEST(OpSeconds, OfATransferGoByItsNodesAndCountEveryTensor) {
  const std::vector<std::string> apart{"F0.0", "F0.1", "B0.0", "B0.1"};
  const Schedule schedule =
      schedule_of(Placement::loop(3, 1), 2, {{"F0.0&F0.1", "B0.0", "B0.1"}, apart, apart});
  const Program program = lower(schedule, {1, 1, 1}, {Release::released, BackwardOrder::suite, false});
  CostTable table = distinct_table();
  table.node_of_rank = {0, 0, 1};
  const std::vector<double> seconds = op_seconds(program, table);
  int seen = 0;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].kind != OpKind::transfer) continue;
    const ProgramStream& link = program.stream_of(op);
    const bool far = link.rank == 2 || link.peer == 2;
    const int tensors = link.rank == 0 ? 2 : 1;
    EXPECT_EQ(seconds[op], tensors * (far ? 0.125 : 0.25)) << describe(program, op);
    ++seen;
  }
  EXPECT_EQ(seen, 1 + 2 + 2 + 2);
}

// The seconds of the ops of a kind, in the Program's order.
std::vector<double> seconds_of(OpKind kind, const Program& program, const CostTable& table) {
  std::vector<double> found;
  const std::vector<double> seconds = op_seconds(program, table);
  for (OpId op = 0; op < seconds.size(); ++op)
    if (program.ops[op].kind == kind) found.push_back(seconds[op]);
  return found;
}

TEST(OpSeconds, OfASharedVocabularysCollectivesGoByWhatTheyCarry) {
  CostTable table;
  table.vocabulary = {.broadcast = 1, .sum = 2, .statistics = 4, .sum_and_statistics = 8};
  const auto shared = [](const std::string& rank) {
    return lower(schedule_from_text("# placement loop\n" + rank + "\n", "x.txt"), {1}, {});
  };
  const Program one_barrier = shared("E0.0 F0.0 S0.0 B0.0 U0.0 G0.0");
  EXPECT_THAT(seconds_of(OpKind::vocabulary_reduce, one_barrier, table), ElementsAre(2, 8));  // of E, of S
  EXPECT_THAT(seconds_of(OpKind::vocabulary_broadcast, one_barrier, table), ElementsAre(1, 1));
  const Program two_barriers = shared("E0.0 F0.0 S0.0 T0.0 B0.0 U0.0 G0.0");
  EXPECT_THAT(seconds_of(OpKind::vocabulary_reduce, two_barriers, table), ElementsAre(2, 4, 2));
}

TEST(OpSeconds, OfASumOverTwoPipelinesAreThoseOfTheRankOrOfItsLayers) {
  const std::vector<std::string> rank{"F0.0", "F1.0", "B1.0", "B0.0"};
  const Program program =
      lower(schedule_of(Placement::bidirectional(2), 1, {rank, rank}), {1, 2, 1, 2}, {.optimizer = true});
  CostTable table;
  table.gradient_reduce_per_layer = 10;
  EXPECT_THAT(seconds_of(OpKind::pipeline_reduce, program, table), ElementsAre(30, 30));
  table.pipeline_reduce = {3, 5};
  EXPECT_THAT(seconds_of(OpKind::pipeline_reduce, program, table), ElementsAre(3, 5));
}

TEST(OpSeconds, OfAnOptimizerAreZeroWhereTheTableHasNone) {
  CostTable table = distinct_table();
  table.optimizer.clear();
  const Program program = small_program({Release::chain, BackwardOrder::suite, true});
  EXPECT_EQ(op_seconds(program, table).back(), 0);
}

TEST(TpCommunicationShare, IsThatOfALayersTwoAllReducesInItsForward) {
  CostTable table;
  EXPECT_EQ(tp_communication_share(table), std::nullopt);  // a layer that takes no time
  table.at(Unit::attn, UnitPass::F) = 3;
  table.at(Unit::mlp, UnitPass::F) = 5;
  table.at(Unit::mlp, UnitPass::I) = 100;  // no forward
  EXPECT_EQ(tp_communication_share(table), 0);
  table.all_reduce = 1;
  EXPECT_EQ(tp_communication_share(table), 0.2);
  table.all_reduce = 0;  // with sequence parallelism
  table.reduce_scatter = table.all_gather = 0.5;
  EXPECT_EQ(tp_communication_share(table), 0.2);
}

// ---- the costs of passes ----

// What F or I of chunk 0 takes where nothing else runs, by the Program's own ops: until the last op of its
// own.
double seconds_alone(const CostTable& table, const Lowering& lowering, int layers, Pass pass) {
  const Schedule schedule = schedule_of(Placement::loop(1, 2), 1, {{"F0.0", "F1.0", "B1.0", "I0.0", "W0.0"}});
  const Program program = lower(schedule, {layers, 0}, lowering);
  const std::vector<double> ends = ends_of_ops(program, op_seconds(program, table));
  std::map<Pass, std::array<double, 2>> end;  // by chunk
  for (OpId op = 0; op < program.ops.size(); ++op) {
    double& last = end[program.ops[op].pass][program.ops[op].chunk];
    last = std::max(last, ends[op]);
  }
  return pass == Pass::F ? end[Pass::F][0] : end[Pass::I][0] - end[Pass::B][1];
}

void expect_seconds_alone(const CostTable& table, const Lowering& lowering = {}) {
  const PassCosts costs = pass_costs(table, 3, lowering);
  EXPECT_NEAR(costs.F / seconds_alone(table, lowering, 3, Pass::F), 1, 1e-12);
  EXPECT_NEAR(costs.I / seconds_alone(table, lowering, 3, Pass::I), 1, 1e-12);
  double weights = 0;
  for (const Unit unit : {Unit::attn, Unit::mlp}) weights += 3 * table.weight_gradients(unit);
  EXPECT_NEAR(costs.W, weights, 1e-12 * weights);
}

TEST(PassCosts, AreThoseOfAChunkRunAloneWithEveryCollectiveThatNothingHides) {
  CostTable table = unit_table({{"attn.F", 1},
                                {"mlp.F", 2},
                                {"attn.I", 4},
                                {"mlp.I", 8},
                                {"attn.W", 16},
                                {"mlp.W", 32},
                                {"attn.W_early", 64},
                                {"mlp.W_early", 128},
                                {"all_reduce", 0.5},
                                {"p2p", 7}});
  expect_seconds_alone(table);
  EXPECT_EQ(pass_costs(table, 3).F, 3 * (1 + 2 + 2 * 0.5));
  EXPECT_EQ(pass_costs(table, 3).p2p, 7);
  expect_seconds_alone(table, {.strategy = {.recompute = {.layer = true}}});
  expect_seconds_alone(table, {.strategy = {.recompute = {.layer = true, .first = 2}}});
  table.reduce_scatter = table.all_gather = 0.25;  // for the all-reduce
  table.all_reduce = 0;
  expect_seconds_alone(table, {.strategy = {.sequence_parallel = true}});
}

TEST(PassCosts, HaveTheExchangesThatTheStepsOfTheCoreDoNotHide) {
  for (const double exchange : {0.0, 1.0, 5.0, 20.0, 100.0})
    for (const int again : {0, 2})
      expect_seconds_alone(ring_table(exchange),
                           {.strategy = {.cp = 3, .recompute = {.layer = again > 0, .first = again}}});
}

TEST(PassCosts, HaveNoFactorsAndAreTheMeanOfRanks) {
  CostTable table = ring_table(5);
  const Lowering lowering{.strategy = {.cp = 3}};
  const double without = pass_costs(table, 3, lowering).F;
  table.layer_factors = {2, 3, 4};
  table.microbatch_factors = {6, 7};
  table.by_rank[{Unit::mlp, UnitPass::F}] = {2 * table.at(Unit::mlp, UnitPass::F), 0};
  EXPECT_EQ(pass_costs(table, 3, lowering).F, without);
}

TEST(PassCosts, HaveAllToAllsWhole) {
  CostTable table = all_to_all_table();
  table.at(Exchange::output) = 128;
  Lowering lowering{.strategy = kHeadsOfFour};
  expect_seconds_alone(table, lowering);
  lowering.strategy.recompute.core = true;
  expect_seconds_alone(table, lowering);
}

TEST(PassCosts, OfOverlappedUnitsHaveWhatTheirStepsDoNotHide) {
  const Strategy strategy{.tp = 4, .sequence_parallel = true, .tp_overlap = TpOverlap::megatron};
  expect_seconds_alone(table_of(job("llm-12.1b", {4096, 1, strategy}, 4), a800()), {.strategy = strategy});
}

}  // namespace
}  // namespace stp
