// Seconds and bytes of ops: unit tables, GEMMs, hardware tables, parameters and activations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "stp/base/json_input.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/gemm.h"
#include "stp/cost/hardware.h"
#include "stp/cost/overlap.h"
#include "stp/cost/saved_memory.h"
#include "stp/model/offload.h"
#include "stp/model/partition.h"
#include "stp/program/lower.h"
#include "support/refusal.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::StartsWith;

HardwareProfile a800() { return read_profile(STP_SOURCE_DIR "/profiles/a800.json"); }
ModelConfig model(const std::string& name) { return read_model(STP_SOURCE_DIR "/models/" + name + ".json"); }

// ---- unit tables ----

CostTable unit_table(const json& value, const Division& division = {}) {
  return unit_cost_table(JsonInput(value, "s.json", "costs.unit"), division);
}
// Attention in parts, and what an exchange takes.
CostTable table_in_parts(const std::string& exchange, double seconds, const Division& division) {
  return unit_table({{"attn.F_before", 1},
                     {"attn.F_core", 2},
                     {"attn.F_after", 4},
                     {"attn.I_before", 8},
                     {"attn.I_core", 16},
                     {"attn.I_after", 32},
                     {exchange, seconds}},
                    division);
}
CostTable ring_table(double exchange) { return table_in_parts("kv_exchange", exchange, {.cp = 3}); }
// Of sequences that four ranks share.
constexpr Division kHeadsOfFour{.cp = 4, .cp_method = CpMethod::all_to_all};
CostTable all_to_all_table() { return table_in_parts("all_to_all", 64, kHeadsOfFour); }

TEST(UnitCostTable, PutsEveryKeyInItsOwnPlace) {
  const json all = {{"attn.F", 1}, {"attn.I", 2},          {"attn.W", 3},  {"attn.W_early", 4},
                    {"mlp.F", 5},  {"mlp.I", 6},           {"mlp.W", 7},   {"mlp.W_early", 8},
                    {"head.F", 9}, {"head.I", 10},         {"head.W", 11}, {"all_reduce", 12},
                    {"p2p", 13},   {"gradient_reduce", 14}};
  const CostTable table = unit_table(all);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::F), 1);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::I), 2);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::W_late), 3);
  EXPECT_EQ(table.at(Unit::attn, UnitPass::W_early), 4);
  EXPECT_EQ(table.at(Unit::mlp, UnitPass::F), 5);
  EXPECT_EQ(table.at(Unit::mlp, UnitPass::I), 6);
  EXPECT_EQ(table.at(Unit::mlp, UnitPass::W_late), 7);
  EXPECT_EQ(table.at(Unit::mlp, UnitPass::W_early), 8);
  EXPECT_EQ(table.at(Unit::head, UnitPass::F), 9);
  EXPECT_EQ(table.at(Unit::head, UnitPass::I), 10);
  EXPECT_EQ(table.at(Unit::head, UnitPass::W_late), 11);
  EXPECT_EQ(table.at(Unit::head, UnitPass::W_early), 0);
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
  EXPECT_EQ(table.kv_exchange, 7);
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
  EXPECT_EQ(table.qkv_all_to_all, 64);
  EXPECT_EQ(table.output_all_to_all, 64);
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
                AllOf(StartsWith("s.json: costs.unit." + key + ": "), HasSubstr(why)));
  };
  refuses("attn.f", 1, "did you mean \"attn.F\"?");
  refuses("head.W_early", 1, "not a known field");
  refuses("embedding.F", 1, "not a known field");
  refuses("attn.B", 1, "not a known field");
  refuses("attn.F", -1, "out of range");
  refuses("all_reduce", 1e10, "out of range");
  refuses("p2p", "1", "must be a number");
}

// ---- seconds of ops ----

// p = 2 on a V, one microbatch: every kind of op, chunks of one layer.
Program small_program(const Lowering& lowering) {
  Schedule schedule{"by hand", Placement::v(2), 1, {}};
  for (int rank = 0; rank < 2; ++rank) {
    auto& blocks = schedule.ranks.emplace_back();
    for (const char* block : {"F0.0", "F1.0", "B1.0", "I0.0", "W0.0"}) blocks.push_back(parse_block(block));
  }
  return lower(schedule, {1, 1, 1, 1}, lowering);
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
  for (const bool sequence_parallel : {false, true}) {
    const BackwardOrder order = sequence_parallel ? BackwardOrder::megatron : BackwardOrder::suite;
    const Program program =
        small_program({.backward = order, .optimizer = true, .sequence_parallel = sequence_parallel});
    const CostTable table = distinct_table();
    const std::vector<double> seconds = op_seconds(program, table);
    ASSERT_EQ(seconds.size(), program.ops.size());
    for (OpId id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      double expected = -1;
      switch (op.kind) {
        case OpKind::compute:
          expected = table.at(op.unit, op.unit_pass);
          break;
        case OpKind::kv_exchange:
        case OpKind::kv_gradient_exchange:
        case OpKind::all_to_all:
        case OpKind::row_exchange:
          break;
        case OpKind::weight_gradients:
          expected = table.at(op.unit, UnitPass::W_early) + table.at(op.unit, UnitPass::W_late);
          break;
        case OpKind::all_reduce:
          expected = 0.5;
          break;
        case OpKind::reduce_scatter:
          expected = 0.375;
          break;
        case OpKind::all_gather:
          expected = 0.3125;
          break;
        case OpKind::transfer:
          expected = 0.25;
          break;  // no nodes given: all on one
        case OpKind::gradient_reduce:
        case OpKind::gradient_scatter:
        case OpKind::weight_gather:
        case OpKind::embedding_reduce:
        case OpKind::gradient_norm:
        case OpKind::norm_prefix:
        case OpKind::norm_total:
          expected = 0;
          break;
        case OpKind::offload:
        case OpKind::reload:
          FAIL() << "nothing is offloaded";
        case OpKind::optimizer:
          expected = program.stream_of(id).rank == 0 ? 1000 : 2000;
          break;
      }
      EXPECT_EQ(seconds[id], expected) << describe(program, id);
    }
  }
}

TEST(OpSeconds, OfCopiesAreBytesOverTheHostLinks) {
  const HardwareProfile profile = read_profile(STP_SOURCE_DIR "/profiles/h20.json");
  Job job{model("llm-12.1b"), {6144, 1, 4}, Implementation::megatron, 4};
  job.offload = 0.4;
  const std::vector<int> layers{4, 4, 4, 4, 4, 4, 4, 2};
  const CostTable table = hardware_cost_table(job, profile, layers, Placement::v(4));
  const double bytes = offloaded_bytes(job.model, job.shape, job.implementation, 4, 0.4);
  const auto by_stage = activation_bytes(job, layers);
  EXPECT_LE(bytes, 0.4 * by_stage[0].until_I);
  EXPECT_GT(bytes, 0.35 * by_stage[0].until_I);
  EXPECT_EQ(by_stage[0].offloaded, bytes);
  EXPECT_EQ(table.offload[0], bytes / profile.device_to_host_bytes_per_s);
  EXPECT_EQ(table.reload[0], bytes / profile.host_to_device_bytes_per_s);
}

TEST(OpSeconds, OfARingAreThoseOfItsPartsAndExchanges) {
  Lowering lowering;
  lowering.context_parallel = 3;
  CostTable table = ring_table(7);
  table.parts_of(Unit::attn, UnitPass::F).core.front() = 3;
  const Program program = small_program(lowering);
  const std::vector<double> seconds = op_seconds(program, table);
  std::map<std::string, double> by_name;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const Op& each = program.ops[op];
    if (is_exchange(each.kind)) {
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

TEST(OpSeconds, OfABackwardDoNotDependOnItsOrder) {
  const CostTable table = distinct_table();
  const auto total = [&](BackwardOrder order) {
    const std::vector<double> seconds = op_seconds(small_program({Release::chain, order, false}), table);
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  EXPECT_EQ(total(BackwardOrder::suite), total(BackwardOrder::megatron));
}

TEST(OpSeconds, OfATransferGoByItsNodesAndCountEveryTensor) {
  Schedule schedule{"by hand", Placement::loop(3, 1), 2, {}};
  schedule.ranks.resize(3);
  for (const char* block : {"F0.0&F0.1", "B0.0", "B0.1"}) schedule.ranks[0].push_back(parse_block(block));
  for (int rank = 1; rank < 3; ++rank)
    for (const char* block : {"F0.0", "F0.1", "B0.0", "B0.1"})
      schedule.ranks[rank].push_back(parse_block(block));
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
}

TEST(PassCosts, AreThoseOfAChunkRunAloneWithEveryAllReduceThatNothingHides) {
  CostTable table = unit_table({{"attn.F", 1},
                                {"mlp.F", 2},
                                {"attn.I", 4},
                                {"mlp.I", 8},
                                {"attn.W", 16},
                                {"mlp.W", 32},
                                {"attn.W_early", 64},
                                {"mlp.W_early", 128},
                                {"all_reduce", 0.5},
                                {"p2p", 7},
                                {"head.F", 9}});
  const PassCosts costs = pass_costs(table, 3);
  EXPECT_EQ(costs.F, 3 * (1 + 2 + 2 * 0.5));
  EXPECT_EQ(costs.I, 3 * (4 + 8 + 2 * 0.5));
  EXPECT_EQ(costs.W, 3 * (16 + 32 + 64 + 128));
  EXPECT_EQ(costs.p2p, 7);
  table.recomputed = true;
  EXPECT_EQ(pass_costs(table, 3).I, costs.I + costs.F);
  EXPECT_EQ(pass_costs(table, 3).F, costs.F);
  table.reduce_scatter = table.all_gather = 0.25;  // for the all-reduce
  table.all_reduce = 0;
  EXPECT_EQ(pass_costs(table, 3).F, costs.F);
}

// As long as the Program's own ops take where nothing else runs.
TEST(PassCosts, HaveTheExchangesThatTheStepsOfTheCoreDoNotHide) {
  for (const double exchange : {0.0, 1.0, 5.0, 20.0, 100.0}) {
    const CostTable table = ring_table(exchange);
    const PassCosts costs = pass_costs(table, 2, {.context_parallel = 3});
    // Forward: two exchanges, each beside a step of 2.
    EXPECT_EQ(costs.F, 2 * (1 + 6 + 4 + 2 * std::max(0.0, exchange - 2))) << exchange;
    // Backward, beside steps of 16: KV1; KV2, dKV1; dKV2; behind the last dKV3.
    const double kv1 = exchange, step0 = 16, step1 = std::max(step0, kv1) + 16;
    const double kv2 = std::max(step0, kv1) + exchange, step2 = std::max(step1, kv2) + 16;
    const double gradients2 = std::max(kv2 + exchange, step1) + exchange;
    const double home = std::max(gradients2, step2) + exchange;
    EXPECT_EQ(costs.I, 2 * (8 + home + 32)) << exchange;
  }
}
TEST(PassCosts, HaveAllToAllsWhole) {
  CostTable table = all_to_all_table();
  table.output_all_to_all = 128;
  Lowering lowering;
  lowering.context_parallel = kHeadsOfFour.cp;
  lowering.cp_method = kHeadsOfFour.cp_method;
  EXPECT_EQ(pass_costs(table, 2, lowering).F, 2 * (1 + 64 + 2 + 128 + 4));
  EXPECT_EQ(pass_costs(table, 2, lowering).I, 2 * (8 + 128 + 16 + 64 + 32));
  lowering.recompute.core = true;
  EXPECT_EQ(pass_costs(table, 2, lowering).I, 2 * (8 + 2 + 128 + 128 + 16 + 64 + 32));
}

// ---- overlap ----

TEST(Overlap, SolvesTheRatesThatMadeTheTimes) {
  std::mt19937 random(811);
  std::uniform_real_distribution<double> seconds(0.1, 10), rate(0.3, 1);
  for (int draw = 0; draw < 1000; ++draw) {
    const double compute = seconds(random), communication = seconds(random);
    const double r = rate(random), s = rate(random);
    // Both run until the shorter is done, the rest alone.
    const double both = std::min(compute / r, communication / s);
    const OverlapTimes times{compute, communication, both + compute - r * both,
                             both + communication - s * both};
    const OverlapFigures figures = overlap_figures(times);
    ASSERT_NEAR(figures.compute_rate, r, 1e-9);
    ASSERT_NEAR(figures.communication_rate, s, 1e-9);
    ASSERT_NEAR(figures.together_s + figures.saved_s, compute + communication, 1e-9);
    ASSERT_NEAR(figures.exposed_s + compute, figures.together_s, 1e-9);
  }
}

TEST(Overlap, OfThePapersExperimentsIsTheirSevenAndAHalfPercentAndTwoPointSix) {
  const OverlapFigures gemm = overlap_figures({8.605, 3.364, 9.251, 3.364 / 0.9});
  EXPECT_NEAR(gemm.compute_slowdown, 0.075, 0.0005);
  EXPECT_NEAR(gemm.compute_rate, 0.83, 0.005);
  EXPECT_NEAR(gemm.saved_s, 11.969 - 9.251, 1e-9);
  const OverlapFigures all_reduce = overlap_figures({0.334, 1.643, 0.334 / 0.83, 1.685});
  EXPECT_NEAR(all_reduce.communication_slowdown, 0.026, 0.0005);
  EXPECT_NEAR(all_reduce.communication_rate, 0.9, 0.005);
}

// ---- GEMMs ----

// One teraflop per second and multiprocessor.
HardwareProfile plain_chip(int sms) {
  HardwareProfile chip{};
  chip.sms = sms;
  chip.peak_flops = 2e12 * sms;
  chip.gemm_efficiency = 0.5;
  chip.gemm_overhead_k = 0;
  return chip;
}

TEST(GemmSeconds, AreThoseOfTheBestTilingByHand) {
  constexpr double k = 1000, per_element = 2 * k / 1e12;
  // One multiprocessor, one tile that fits exactly: the full rate.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {256, 128, k}), 256 * 128 * per_element);
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {128, 256, k}), 256 * 128 * per_element);
  // 129 rows: 256 × 128 wastes 127 of them; 3 tiles of 64 × 128 at 0.8 cost 61 440, less than 65 536.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {129, 128, k}), 3 * 64 * 128 / 0.8 * per_element);
  // Four multiprocessors: cut into four 128 × 64 tiles, all busy at 0.8 of the rate, 20 480 against 65 536 on
  // one.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(4), {256, 128, k}), 128 * 64 / 0.8 * per_element);
  // Five large tiles on four multiprocessors are two waves, 65 536 each; 128 × 128 takes three at 0.95 (51
  // 739), 64 × 128 five at 0.8 (51 200).
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(4), {1280, 128, k}), 5 * 64 * 128 / 0.8 * per_element);
}

TEST(GemmSeconds, PayTheOverheadOfATileInStepsOfK) {
  HardwareProfile chip = plain_chip(1);
  const double without = gemm_seconds(chip, {256, 128, 1250});
  chip.gemm_overhead_k = 250;
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {256, 128, 1000}), without);
}

TEST(GemmSeconds, NeverBeatPeakTimesEfficiencyAndComeNearIt) {
  const HardwareProfile profile = a800();
  const double top = profile.peak_flops * profile.gemm_efficiency;
  std::mt19937 random(701);
  std::uniform_real_distribution<double> log_size(0, 16);
  for (int draw = 0; draw < 20000; ++draw) {
    const Gemm gemm{std::floor(std::exp2(log_size(random))), std::floor(std::exp2(log_size(random))),
                    std::floor(std::exp2(log_size(random)))};
    ASSERT_LE(gemm.flops() / gemm_seconds(profile, gemm), top * (1 + 1e-12))
        << gemm.m << " " << gemm.n << " " << gemm.k;
  }
  double before = 0;
  for (const double size : {1024.0, 4096.0, 16384.0, 65536.0, 262144.0}) {
    const double rate = Gemm{size, size, size}.flops() / gemm_seconds(profile, {size, size, size});
    EXPECT_GT(rate, before);
    before = rate;
  }
  EXPECT_GT(before, 0.998 * top);
}

TEST(GemmSeconds, GrowWithEveryDimension) {
  const HardwareProfile profile = a800();
  std::mt19937 random(702);
  for (int draw = 0; draw < 5000; ++draw) {
    const Gemm gemm{1.0 + static_cast<double>(random() % 8192), 1.0 + static_cast<double>(random() % 8192),
                    1.0 + static_cast<double>(random() % 8192)};
    const double more = static_cast<double>(random() % 500), time = gemm_seconds(profile, gemm);
    ASSERT_LE(time, gemm_seconds(profile, {gemm.m + more, gemm.n, gemm.k}));
    ASSERT_LE(time, gemm_seconds(profile, {gemm.m, gemm.n + more, gemm.k}));
    ASSERT_LT(time, gemm_seconds(profile, {gemm.m, gemm.n, gemm.k + 1 + more}));
  }
}

TEST(GemmSeconds, AreThoseMeasuredWhereTheProfileHasMeasurements) {
  HardwareProfile chip = plain_chip(4);
  const Gemm forward{64, 32, 16}, gradient = weight_gradient(forward);
  chip.gemm_measured = {{forward, 2e-6}, {gradient, 4e-6}};
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, forward), 2e-6);
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, gradient), 4e-6);
  // Nearby shapes go at nearly the rate of the neighbour, half way between two at the mean.
  EXPECT_NEAR(gemm_seconds(chip, {65, 32, 16}), 2e-6 * 65 / 64, 0.001e-6);
  chip.gemm_measured = {{{64, 64, 64}, 1e-6}, {{64, 64, 256}, 2e-6}};  // rates 1 : 2
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {64, 64, 128}), 2e-6 / 1.5);
  // The only measurement, of another kind, still gives the machine's rate.
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {64, 64, 128, GemmKind::input_gradient}), 2e-6 / 1.5);
}

TEST(GemmSeconds, ReproduceTheRatesMeasuredOnA100) {
  const HardwareProfile profile = read_profile(STP_SOURCE_DIR "/profiles/a100.json");
  const auto rate = [&](const Gemm& gemm) { return gemm.flops() / gemm_seconds(profile, gemm) / 1e12; };
  EXPECT_NEAR(rate({16384, 16384, 16384}) / 256.5, 1, 0.002);  // the efficiency follows from it
  EXPECT_NEAR(rate({8192, 8192, 8192}) / 253.7, 1, 0.03);
  EXPECT_NEAR(rate({4096, 4096, 4096}) / 228, 1, 0.03);
  EXPECT_NEAR(rate({6144, 12288, 12288}) / 250.8, 1, 0.03);
}

TEST(GemmSeconds, ReproduceTheBestRateMeasuredOnH100) {
  const HardwareProfile profile = read_profile(STP_SOURCE_DIR "/profiles/h100.json");
  const Gemm best{6144, 17920, 2816};
  EXPECT_NEAR(best.flops() / gemm_seconds(profile, best) / 792.1e12, 1, 0.002);
}

// ---- the hardware table ----

Job job(const std::string& name, Shape shape, int pp,
        Implementation implementation = Implementation::megatron) {
  return {model(name), shape, implementation, pp};
}
CostTable table_of(const Job& j, const HardwareProfile& profile) {
  const Placement placement = Placement::v(j.pp);
  return hardware_cost_table(j, profile, paper_partition(j.model.layers, placement.stages()), placement);
}

TEST(HardwareCostTable, AddsUpGemmsAttentionTrafficAndLaunches) {
  for (const Implementation implementation :
       {Implementation::megatron, Implementation::suite, Implementation::megatron_2022}) {
    const Job j = job("llm-12.1b", {6144, 1, 4}, 4, implementation);
    const HardwareProfile profile = a800();
    const CostTable table = table_of(j, profile);
    for (const Unit unit : kUnits) {
      for (const UnitPass pass : kUnitPasses) {
        const Work w = work(j.model, j.shape, implementation, unit, pass);
        double expected = w.kernels * 2e-6;
        for (const Gemm& gemm : w.gemms) expected += gemm_seconds(profile, gemm);
        expected += w.attention_forward_flops / (312e12 * profile.attention_forward_efficiency);
        expected += w.attention_backward_flops / (312e12 * profile.attention_backward_efficiency);
        const double factor = implementation == Implementation::megatron ? profile.elementwise_factor : 1;
        expected += (w.replicated_bytes * factor + w.sharded_bytes) / 1610e9;  // what is fused is as counted
        if (unit == Unit::head && pass == UnitPass::F)  // maximum, target and sum of the loss, fp32 per token
          expected += 3 * all_reduce_seconds(profile, 6144 * 4, 4);
        EXPECT_NEAR(table.at(unit, pass), expected, 1e-12) << to_string(unit, pass);
        EXPECT_EQ(table.at(unit, pass) > 0, has_pass(unit, pass) && !is_vision(unit))
            << to_string(unit, pass);
      }
    }
  }
}

TEST(HardwareCostTable, AUnitOfShortKernelsTakesAsLongAsTheHostNeedsToLaunchThem) {
  HardwareProfile profile = a800();
  const auto mlp = [&](int seq, Implementation implementation, double host_launch_s) {
    profile.host_launch_s = host_launch_s;
    return table_of(job("llm-12.1b", {seq, 1, 8}, 2, implementation), profile).at(Unit::mlp, UnitPass::F);
  };
  const Implementation megatron = Implementation::megatron, suite = Implementation::suite;
  const int kernels = work(model("llm-12.1b"), {64, 1, 8}, megatron, Unit::mlp, UnitPass::F).kernels;
  EXPECT_DOUBLE_EQ(mlp(64, megatron, 1e-3), kernels * 1e-3);
  EXPECT_EQ(mlp(6144, megatron, 8e-6), mlp(6144, megatron, 0));
  EXPECT_EQ(mlp(64, suite, 1e-3), mlp(64, suite, 0));
}

Job vision_job(Implementation implementation = Implementation::megatron) {
  Job j = job("mllm-14.9b", {5120, 1, 8}, 2, implementation);
  j.shape.vision_tokens = 3136;
  return j;
}
const std::vector<int> kVisionLayers{0, 12, 12, 9};

TEST(HardwareCostTable, HasTheUnitsOfAVisionEncoderAndTheirAllReduces) {
  const Job j = vision_job();
  const HardwareProfile profile = a800();
  const CostTable table = hardware_cost_table(j, profile, kVisionLayers, Placement::v(2));
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      EXPECT_EQ(table.at(unit, pass) > 0, has_pass(unit, pass)) << to_string(unit, pass);
  const auto seconds = [&](double elements) { return all_reduce_seconds(profile, 2 * elements, 8); };
  EXPECT_DOUBLE_EQ(table.all_reduce, seconds(5120.0 * 5120));
  EXPECT_DOUBLE_EQ(table.vision_all_reduce, seconds(3136.0 * 2048));
  EXPECT_DOUBLE_EQ(table.merged_all_reduce, seconds(784.0 * 5120));
  EXPECT_EQ(table.all_reduce_of(Unit::embedding, UnitPass::F), table.all_reduce);
  EXPECT_EQ(table.all_reduce_of(Unit::vision_mlp, UnitPass::F), table.vision_all_reduce);
  EXPECT_EQ(table.all_reduce_of(Unit::merger, UnitPass::I), table.vision_all_reduce);
  EXPECT_EQ(table.all_reduce_of(Unit::merger, UnitPass::F), table.merged_all_reduce);
}

TEST(HardwareCostTable, ReducesAndSendsTheHiddenTensor) {
  const Job j = job("llm-12.1b", {6144, 1, 8}, 2);
  const HardwareProfile profile = a800();
  const CostTable table = table_of(j, profile);
  constexpr double bytes = 60.0 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(table.all_reduce, all_reduce_seconds(profile, bytes, 8));
  EXPECT_DOUBLE_EQ(table.transfer_within_node, 10e-6 + bytes / 160e9);
  EXPECT_DOUBLE_EQ(table.transfer_between_nodes, 20e-6 + bytes / 23.5e9);
  EXPECT_EQ(table_of(job("llm-12.1b", {6144, 1, 1}, 4), profile).all_reduce, 0);
}

// Where either ends first, the sum is the longer and one wave of the shorter.
TEST(FusedSeconds, AreTheLongerAndOneWaveOfTheShorter) {
  const HardwareProfile profile = a800();
  for (const double waves : {1.0, 3.0}) {
    const Gemm gemm{128 * profile.sms * waves, 256, 4096};
    const double compute = gemm_seconds(profile, gemm);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, compute / 2), compute + compute / 2 / waves);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, compute * 2), 2 * compute + compute / waves);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, 0), compute);
  }
}

TEST(HardwareCostTable, LeavesWithFluxOfEachCollectiveWhatItsGemmDoesNotHide) {
  const HardwareProfile profile = a800();
  Job j = job("llm-12.1b", {6144, 1, 8, true}, 2);
  const CostTable plain = table_of(j, profile);
  j.shape.tp_overlap = TpOverlap::flux;
  const CostTable table = table_of(j, profile);
  const double rows = 6144, h = 5120, qkv = (40 + 2 * 8) * 128 / 8.0, q = h / 8, ffn = 18944 / 8.0;
  const auto left = [&](const Gemm& gemm) {
    return fused_seconds(profile, gemm, plain.all_gather) - gemm_seconds(profile, gemm);
  };
  const auto attn_F = table.collectives(Unit::attn, UnitPass::F),
             mlp_I = table.collectives(Unit::mlp, UnitPass::I);
  EXPECT_DOUBLE_EQ(attn_F.gather, left({rows, qkv, h}));
  EXPECT_DOUBLE_EQ(attn_F.scatter, left({rows, h, q}));
  EXPECT_DOUBLE_EQ(mlp_I.gather, left(input_gradient({rows, h, ffn})));
  EXPECT_DOUBLE_EQ(mlp_I.scatter, left(input_gradient({rows, 2 * ffn, h})));
  EXPECT_EQ(table.collectives(Unit::embedding, UnitPass::F).scatter, plain.reduce_scatter);
  EXPECT_EQ(table.unit, plain.unit);  // compute is as it was
  // Never less than nothing, never more than the collective and a wave.
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
      const auto [gather, scatter] = table.collectives(unit, pass);
      for (const double one : {gather, scatter}) {
        EXPECT_GT(one, 0);
        EXPECT_LT(one, plain.all_gather);
      }
    }
  EXPECT_LT(pass_costs(table, 4).F, pass_costs(plain, 4).F);
}

TEST(HardwareCostTable, DividesByTheRanksTheElementwiseTimeThatSequenceParallelismDivides) {
  HardwareProfile profile = a800();
  const auto forward = [&](bool sequence_parallel) {
    return table_of(job("llm-12.1b", {6144, 1, 8, sequence_parallel}, 2), profile).at(Unit::mlp, UnitPass::F);
  };
  const double whole = forward(false), divided = forward(true);
  profile.elementwise_undivided = 1;
  EXPECT_EQ(forward(false), whole);
  EXPECT_DOUBLE_EQ(forward(true), whole);
  profile.elementwise_undivided = 0.25;
  EXPECT_NEAR(forward(true), 0.75 * divided + 0.25 * whole, 1e-12);
}

TEST(HardwareCostTable, HasAReduceScatterAndAnAllGatherOfOneAllReducesVolumeWithSequenceParallelism) {
  const HardwareProfile profile = a800();
  const CostTable plain = table_of(job("llm-12.1b", {6144, 1, 8}, 2), profile);
  const CostTable table = table_of(job("llm-12.1b", {6144, 1, 8, true}, 2), profile);
  EXPECT_EQ(plain.reduce_scatter + plain.all_gather, 0);
  EXPECT_EQ(table.all_reduce, 0);
  EXPECT_EQ(table.reduce_scatter, table.all_gather);
  // As many steps of the ring and as many bytes; one more latency of a collective.
  EXPECT_NEAR(table.reduce_scatter + table.all_gather, plain.all_reduce + profile.all_reduce_latency_s,
              1e-12);
  EXPECT_LT(table.at(Unit::attn, UnitPass::F), plain.at(Unit::attn, UnitPass::F));  // norms are divided
  EXPECT_EQ(table.at(Unit::mlp, UnitPass::W_late), plain.at(Unit::mlp, UnitPass::W_late));
}

TEST(HardwareCostTable, SendsATpthWhereTransfersAreScatteredOrThereIsNoMore) {
  const HardwareProfile profile = a800();
  constexpr double bytes = 60.0 * 1024 * 1024;
  Job j = job("llm-12.1b", {6144, 1, 8}, 2);
  j.scatter_transfers = true;
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_between_nodes,
                   20e-6 + bytes / 8 / 23.5e9 + half_all_reduce_seconds(profile, bytes, 8));
  j.shape.sequence_parallel = true;  // nothing to gather: the next stage wants no more
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_between_nodes, 20e-6 + bytes / 8 / 23.5e9);
  j.scatter_transfers = false;
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_within_node, 10e-6 + bytes / 8 / 160e9);
}

TEST(HardwareCostTable, KnowsWhereNodesEnd) {
  const HardwareProfile profile = a800();  // 8 GPUs a node
  EXPECT_THAT(table_of(job("llm-12.1b", {6144, 1, 8}, 2), profile).node_of_rank, ElementsAre(0, 1));
  EXPECT_THAT(table_of(job("llm-26.3b", {4096, 1, 8}, 4), profile).node_of_rank, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(table_of(job("llm-12.1b", {6144, 1, 4}, 4), profile).node_of_rank, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(table_of(job("llm-12.1b", {6144, 1, 2}, 8), profile).node_of_rank,
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(table_of(job("llm-12.1b", {6144, 1, 1}, 2), profile).node_of_rank, ElementsAre(0, 0));
}

TEST(HardwareCostTable, PutsReplicasBetweenPipelineRanks) {
  const auto nodes = [](int tp, int dp, int pp) {
    Job j = job("llm-12.1b", {6144, 1, tp}, pp);
    j.dp = dp;
    return table_of(j, a800()).node_of_rank;
  };
  EXPECT_THAT(nodes(2, 2, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(nodes(4, 2, 2), ElementsAre(0, 1));
  // Of eight and four ranks on each side of a node's end, some replica sends to another node.
  EXPECT_THAT(nodes(4, 3, 2), ElementsAre(-1, -2));
}

TEST(HardwareCostTable, ReducesGradientsWhereTheReplicasAre) {
  const HardwareProfile profile = a800();  // 8 GPUs a node
  const auto reduced = [&](int tp, int dp, int gradient_bytes) {
    Job j = job("llm-12.1b", {6144, 1, tp}, 2);
    j.dp = dp;
    j.shape.gradient_bytes = gradient_bytes;
    return table_of(j, profile).gradient_reduce[1].front();
  };
  const double parameters = 8 * model("llm-12.1b").layer_parameters();
  EXPECT_DOUBLE_EQ(reduced(2, 4, 4), all_reduce_seconds(profile, 4 * parameters / 2, 4));  // one node
  EXPECT_DOUBLE_EQ(reduced(2, 4, 2), all_reduce_seconds(profile, 2 * parameters / 2, 4));
  // Two nodes: eight groups of two, each GPU with an adapter; and two groups of eight, with four each.
  const double latency = profile.all_reduce_latency_s + 2 * profile.between_nodes.latency_s;
  EXPECT_DOUBLE_EQ(reduced(8, 2, 4), latency + 4 * parameters / 8 / 23.5e9);
  EXPECT_DOUBLE_EQ(reduced(2, 8, 4), latency + 12 * profile.all_reduce_hop_latency_s +
                                         4 * parameters / 2 * 14 / 8 / (4 * 23.5e9));
}

// The first stage's, in the Program's buckets: together they are as large, and each has its own latency.
TEST(HardwareCostTable, ReducesTheFirstStageBucketByBucket) {
  const HardwareProfile profile = a800();
  Job j = job("llm-12.1b", {6144, 1, 2}, 2);
  j.dp = 4;
  j.zero = true;
  Schedule schedule{"one after the other", Placement::loop(2, 1), 1, {}};
  for (int rank = 0; rank < 2; ++rank)
    schedule.ranks.push_back({Block(Action{Pass::F, 0, 0}), Block(Action{Pass::B, 0, 0})});
  for (const bool zero : {false, true}) {
    const Program program = lower(schedule, {3, 2},
                                  {.data_parallel = true,
                                   .zero = zero,
                                   .buckets = megatron_bucket_rule(j.model, 2, 4),
                                   .embedding = true});
    // An MLP, 145 million parameters of the rank, fills one; an attention of 31 and the next MLP fill
    // another.
    ASSERT_EQ(program.first_buckets.size(), 4U);
    const std::vector<double> seconds = op_seconds(
        program, hardware_cost_table(j, profile, {3, 2}, program.schedule.placement, program.first_buckets));
    double parameters = 0;
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const OpKind kind = program.ops[op].kind;
      if (!is_of_replicas(kind) || program.stage_of(op) != 0) continue;
      const double own = program.first_buckets[program.ops[op].step].parameters;
      if (kind != OpKind::weight_gather) parameters += own;
      const double bytes = (kind == OpKind::weight_gather ? 2 : 4) * own;
      EXPECT_DOUBLE_EQ(seconds[op], kind == OpKind::gradient_reduce
                                        ? all_reduce_seconds(profile, bytes, 4)
                                        : half_all_reduce_seconds(profile, bytes, 4));
    }
    const double whole = 3 * j.model.layer_parameters() + j.model.vocabulary_parameters();
    EXPECT_DOUBLE_EQ(parameters, whole / 2);
  }
}

TEST(HardwareCostTable, ExchangesKeysAndValuesWhereTheRingsNeighboursAre) {
  const HardwareProfile profile = a800();  // 8 GPUs a node, each with an adapter
  const auto exchange = [&](int tp, int cp) {
    Job j = job("llm-12.1b", {6144, 1, tp}, 2);
    j.shape.cp = cp;
    return std::pair(table_of(j, profile).kv_exchange, kv_bytes(j.model, j.shape));
  };
  const auto [within, bytes] = exchange(2, 4);
  EXPECT_DOUBLE_EQ(within, 10e-6 + bytes / 160e9);
  const auto [between, fewer] =
      exchange(4, 4);  // of eight GPUs of a node four have their neighbour elsewhere
  EXPECT_DOUBLE_EQ(between, 20e-6 + fewer / 23.5e9);
  HardwareProfile shared = profile;
  shared.adapters_per_node = 2;
  Job j = job("llm-12.1b", {6144, 1, 4}, 2);
  j.shape.cp = 4;
  EXPECT_DOUBLE_EQ(table_of(j, shared).kv_exchange, 20e-6 + fewer / (23.5e9 * 2 / 4));
  EXPECT_EQ(exchange(4, 1).first, 0);
}

// Of 8 GPUs a node, each with an adapter: a share of the heads for each other rank, those of other nodes
// through the adapter.
TEST(HardwareCostTable, PricesAllToAllsByWhatLeavesTheGpuAndTheNode) {
  HardwareProfile profile = a800();
  const auto table = [&](int tp, int cp) {
    Job j = job("llm-12.1b", {12288, 1, tp}, 2);
    j.shape.cp = cp;
    j.shape.cp_method = CpMethod::all_to_all;
    return std::pair(table_of(j, profile), j);
  };
  // Read and written before and behind it.
  const auto copies = [&](double bytes) { return 4 * bytes / profile.memory_bytes_per_s; };
  const auto [within, four] = table(2, 4);
  const double qkv = qkv_bytes(four.model, four.shape), out = attention_output_bytes(four.model, four.shape);
  EXPECT_EQ(out, 2.0 * 12288 / 4 * four.model.q_heads * four.model.head_dim / 2);
  EXPECT_EQ(qkv, out + kv_bytes(four.model, four.shape));
  EXPECT_DOUBLE_EQ(within.qkv_all_to_all, 10e-6 + qkv * 3 / 4 / 160e9 + copies(qkv));
  EXPECT_DOUBLE_EQ(within.output_all_to_all, 10e-6 + out * 3 / 4 / 160e9 + copies(out));
  EXPECT_EQ(within.kv_exchange, 0);
  EXPECT_EQ(within.parts_of(Unit::attn, UnitPass::F).core.size(), 1U);
  const auto [between, two] = table(4, 4);  // two of the four are on the other node
  const double half = qkv_bytes(two.model, two.shape);
  EXPECT_DOUBLE_EQ(between.qkv_all_to_all, 20e-6 + half * 2 / 4 / 23.5e9 + copies(half));
  profile.adapters_per_node = 2;
  EXPECT_DOUBLE_EQ(table(4, 4).first.qkv_all_to_all, 20e-6 + half * 2 / 4 / (23.5e9 * 2 / 8) + copies(half));
}

TEST(HardwareCostTable, PricesStepsOfOverlappedUnitsByTheirShapesAndTheSmsThatTheyHave) {
  HardwareProfile profile = a800();
  profile.kernel_overhead_s = profile.elementwise_factor = 0;
  profile.memory_bytes_per_s = 1e30;
  Job j = job("llm-12.1b", {4096, 1, 4, true}, 4);
  const CostTable plain = table_of(j, profile);
  j.shape.tp_overlap = TpOverlap::megatron;
  const CostTable table = table_of(j, profile);
  const double hidden = j.model.hidden, ffn = j.model.ffn / 4.0, fc1 = 2 * ffn;
  const auto on = [&](int sms, const Gemm& gemm) {
    HardwareProfile fewer = profile;
    fewer.peak_flops *= 1.0 * sms / profile.sms;
    fewer.sms = sms;
    return gemm_seconds(fewer, gemm);
  };
  const CostTable::Parts &forward = table.parts_of(Unit::mlp, UnitPass::F),
                         &backward = table.parts_of(Unit::mlp, UnitPass::I);
  // Rings: a quarter of the rows on all 108 SMs. Pipeline and bulk: on 92.
  EXPECT_THAT(forward.before, testing::Each(testing::DoubleEq(on(108, {1024, fc1, hidden}))));
  EXPECT_THAT(forward.after, testing::Each(testing::DoubleEq(on(92, {4096, hidden / 4, ffn}))));
  EXPECT_THAT(backward.before, testing::Each(testing::DoubleEq(on(108, {1024, ffn, hidden}))));
  const auto steps = [](const CostTable::Parts& parts) {
    return std::vector{parts.before.size(), parts.core.size(), parts.after.size()};
  };
  EXPECT_THAT(steps(forward), ElementsAre(4, 1, 4));
  EXPECT_THAT(steps(backward), ElementsAre(4, 1, 1));
  // I without W has nothing beside its last GEMM.
  EXPECT_DOUBLE_EQ(backward.after[0], on(108, {4096, hidden, fc1}));
  EXPECT_DOUBLE_EQ((*table.bulk)[1].after_I, on(92, {4096, hidden, fc1}));
  EXPECT_DOUBLE_EQ((*table.bulk)[1].W_late, on(92, {fc1, hidden, 4096}));
  EXPECT_DOUBLE_EQ(table.at(Unit::mlp, UnitPass::W_late), plain.at(Unit::mlp, UnitPass::W_late));
  const double bytes = 2 * 4096 * hidden;
  EXPECT_DOUBLE_EQ(table.row_exchange, 10e-6 + bytes / 4 / 160e9);
  EXPECT_DOUBLE_EQ(table.piece_scatter, half_all_reduce_seconds(profile, bytes / 4, 4));
  EXPECT_EQ(table.reduce_scatter, plain.reduce_scatter);
  EXPECT_FALSE(plain.bulk.has_value());
  // Measured GEMMs lose their share of the SMs; a device with no more than 16 has none to spare.
  const Gemm gemm{1024, 1024, 1024};
  HardwareProfile measured = profile;
  measured.gemm_measured = {{gemm, 1e-3}};
  EXPECT_DOUBLE_EQ(gemm_seconds(measured, gemm, 16), 1e-3 * 108 / 92);
  measured.sms = 16;
  EXPECT_DOUBLE_EQ(gemm_seconds(measured, gemm, 16), 1e-3);
}

TEST(PassCosts, GemmsLeaveSmsToReceivesThatWait) {
  HardwareProfile profile = a800();
  Job j = job("llm-12.1b", {4096, 1, 4, true}, 4);
  j.shape.tp_overlap = TpOverlap::megatron;
  for (const auto& [pp, waiting] : std::map<int, int>{{1, 0}, {2, 4}, {4, 8}}) {
    j.pp = pp;
    profile.receive_sms = 4;
    const CostTable table = table_of(j, profile);
    profile.receive_sms = 0;
    HardwareProfile fewer = profile;
    fewer.peak_flops *= 1.0 * (profile.sms - waiting) / profile.sms;
    fewer.sms -= waiting;
    // Attention's core keeps its rate.
    fewer.attention_forward_efficiency *= profile.peak_flops / fewer.peak_flops;
    fewer.attention_backward_efficiency *= profile.peak_flops / fewer.peak_flops;
    const CostTable expected = table_of(j, fewer);
    for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
      for (const UnitPass pass : kUnitPasses)
        EXPECT_DOUBLE_EQ(table.at(unit, pass), expected.at(unit, pass)) << pp;
    const CostTable::Parts& parts = table.parts_of(Unit::mlp, UnitPass::F);
    EXPECT_DOUBLE_EQ(parts.before[0], expected.parts_of(Unit::mlp, UnitPass::F).before[0]);
    EXPECT_DOUBLE_EQ(parts.after[0], expected.parts_of(Unit::mlp, UnitPass::F).after[0]);
  }
}

TEST(PassCosts, OfOverlappedUnitsHaveWhatTheirStepsDoNotHide) {
  const Job plain = job("llm-12.1b", {4096, 1, 4, true}, 4);
  Job overlapped = plain;
  overlapped.shape.tp_overlap = TpOverlap::megatron;
  const CostTable table = table_of(overlapped, a800());
  Lowering lowering{.sequence_parallel = true};
  lowering.tp_overlap = TpOverlap::megatron;
  lowering.tensor_parallel = 4;
  double forward = 0, backward = 0;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
      const CostTable::Parts& parts = table.parts_of(unit, pass);
      double ring = 0, end = 0;
      for (const double step : parts.before) {
        end = std::max(end, ring) + step;
        ring += table.row_exchange;
      }
      end += parts.norm + parts.core[0];
      double sums = end;
      for (const double step : parts.after) {
        end += step;
        sums = std::max(sums, end) + (pass == UnitPass::F ? table.piece_scatter : table.reduce_scatter);
      }
      (pass == UnitPass::F ? forward : backward) += sums;
    }
  const PassCosts costs = pass_costs(table, 3, lowering);
  EXPECT_DOUBLE_EQ(costs.F, 3 * forward);
  EXPECT_DOUBLE_EQ(costs.I, 3 * backward);
  EXPECT_EQ(costs.W, pass_costs(table_of(plain, a800()), 3).W);
}

TEST(HardwareCostTable, ReducesGradientsOverTheRingToo) {
  const HardwareProfile profile = a800();
  const auto reduced = [&](int cp, int dp) {
    Job j = job("llm-12.1b", {6144, 1, 2}, 2);
    j.shape.cp = cp;
    j.dp = dp;
    return table_of(j, profile).gradient_reduce;
  };
  EXPECT_EQ(reduced(4, 1), reduced(1, 4));
  EXPECT_EQ(reduced(2, 2), reduced(1, 4));
  EXPECT_THAT(reduced(1, 1), IsEmpty());
}

TEST(HardwareCostTable, ReducesTiedEmbeddingsBetweenTheFirstAndTheLastRank) {
  const HardwareProfile profile = a800();
  const auto reduced = [&](const char* name, const Placement& placement, int tp) {
    Job j = job(name, {2048, 1, tp}, placement.ranks());
    j.dp = 2;
    const std::vector<int> layers(placement.stages(), j.model.layers / placement.stages());
    return hardware_cost_table(j, profile, layers, placement).embedding_reduce;
  };
  const double bytes = 4 * model("gpt-175b").vocabulary_parameters();
  const double latency = profile.all_reduce_latency_s + 2 * profile.between_nodes.latency_s;
  EXPECT_DOUBLE_EQ(reduced("gpt-175b", Placement::loop(8, 1), 8), latency + bytes / 8 / 23.5e9);
  EXPECT_DOUBLE_EQ(reduced("gpt-175b", Placement::loop(4, 1), 1), all_reduce_seconds(profile, bytes, 2));
  EXPECT_EQ(reduced("gpt-175b", Placement::v(4), 8), 0);         // one copy
  EXPECT_EQ(reduced("llm-26.3b", Placement::loop(4, 1), 8), 0);  // not tied
}

TEST(HardwareCostTable, SendsBetweenNodesAtTp8AndAlternatelyAtTp4) {
  const HardwareProfile profile = a800();
  const auto far_hops = [&](int tp, int pp) {  // of the first microbatch's forward in chunk 0
    const CostTable table = table_of(job("llm-26.3b", {4096, 1, tp}, pp), profile);
    Schedule schedule{"by hand", Placement::v(pp), 1, {}};
    for (int rank = 0; rank < pp; ++rank) {
      auto& blocks = schedule.ranks.emplace_back();
      for (const char* block : {"F0.0", "F1.0", "B1.0", "B0.0"}) blocks.push_back(parse_block(block));
    }
    const Program program = lower(schedule, std::vector<int>(2 * pp, 1), {});
    const std::vector<double> seconds = op_seconds(program, table);
    std::vector<bool> far;
    for (OpId op = 0; op < program.ops.size(); ++op)
      if (program.ops[op].kind == OpKind::transfer && program.ops[op].pass == Pass::F &&
          program.ops[op].chunk == 0)
        far.push_back(seconds[op] == table.transfer_between_nodes);
    return far;
  };
  EXPECT_THAT(far_hops(8, 4), ElementsAre(true, true, true));
  EXPECT_THAT(far_hops(4, 8), ElementsAre(false, true, false, true, false, true, false));
}

TEST(ParametersPerRank, SumUpToTheModelButForTheLastNorm) {
  for (const auto& [name, pp, tp] : {std::tuple{"llm-12.1b", 4, 4},
                                     {"llm-12.1b", 2, 8},
                                     {"llm-12.1b", 8, 2},
                                     {"llm-26.3b", 8, 4},
                                     {"llm-26.3b", 4, 8}}) {
    const Job j = job(name, {4096, 1, tp}, pp);
    for (const Placement& placement : {Placement::v(pp), Placement::loop(pp, 2)}) {
      const std::vector<double> parameters =
          parameters_per_rank(j, paper_partition(j.model.layers, 2 * pp), placement);
      ASSERT_EQ(parameters.size(), static_cast<size_t>(pp));
      EXPECT_NEAR(std::accumulate(parameters.begin(), parameters.end(), 0.0) * tp,
                  j.model.parameters() - j.model.hidden, 1);
    }
  }
}

TEST(ParametersPerRank, PutEmbeddingAndHeadWhereThePlacementPutsFirstAndLastStage) {
  const Job j = job("llm-12.1b", {6144, 1, 4}, 4);
  const double layer = j.model.layer_parameters() / 4, vocabulary = j.model.vocabulary_parameters() / 4;
  const std::vector<int> layers = paper_partition(30, 8);
  const std::vector<double> v = parameters_per_rank(j, layers, Placement::v(4)),
                            loop = parameters_per_rank(j, layers, Placement::loop(4, 2));
  EXPECT_DOUBLE_EQ(v[0], 6 * layer + 2 * vocabulary);  // first and last stage both
  EXPECT_DOUBLE_EQ(v[3], 8 * layer);
  EXPECT_DOUBLE_EQ(loop[0], 8 * layer + vocabulary);
  EXPECT_DOUBLE_EQ(loop[3], 6 * layer + vocabulary);
  const CostTable table = table_of(j, a800());
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_DOUBLE_EQ(table.optimizer[rank], v[rank] * optimizer_bytes(Implementation::megatron) / 1610e9);
}

TEST(ParametersPerRank, PutAVisionEncoderOnTheFirstStage) {
  const Job j = vision_job();
  const double layer = j.model.layer_parameters() / 8, vocabulary = j.model.vocabulary_parameters() / 8;
  const std::vector<double> v = parameters_per_rank(j, kVisionLayers, Placement::v(2));
  EXPECT_DOUBLE_EQ(v[0], 9 * layer + 2 * vocabulary + j.model.vision_parameters() / 8);
  EXPECT_DOUBLE_EQ(v[1], 24 * layer);
  EXPECT_NEAR(8 * (v[0] + v[1]), j.model.parameters() - j.model.hidden, 1);
}

TEST(ParametersPerRank, KeepTiedWeightsOncePerGpu) {
  const double vocabulary = model("gpt-175b").vocabulary_parameters() / 8,
               layer = model("gpt-175b").layer_parameters() / 8;
  const auto parameters = [&](int pp, const Placement& placement) {
    return parameters_per_rank(job("gpt-175b", {2048, 1, 8}, pp), std::vector<int>(placement.stages(), 1),
                               placement);
  };
  EXPECT_THAT(parameters(1, Placement::loop(1, 1)), ElementsAre(layer + vocabulary));
  EXPECT_THAT(parameters(2, Placement::loop(2, 1)), ElementsAre(layer + vocabulary, layer + vocabulary));
  EXPECT_THAT(parameters(2, Placement::v(2)), ElementsAre(2 * layer + vocabulary, 2 * layer));
}

// ---- activations ----

std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<ActivationBytes>& bytes,
                               double offload = 0) {
  const std::vector<int> layers(schedule.placement.stages(), 1);
  return peak_activation_bytes(lower(schedule, layers, {.offload = offload}), bytes);
}

TEST(ActivationBytes, OfRecomputedLayersAreTheirInputsAndOneWholeLayerDuringTheBackward) {
  const auto bytes = [&](bool sequence_parallel, Recompute recompute, int layers) {
    return activation_bytes(
        job("gpt-22b", {2048, 4, 8, sequence_parallel, recompute}, 1, Implementation::megatron_2022),
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
  // The walk counts it in the blocks that have a backward, and drops it with them.
  Schedule schedule{"by hand", Placement::loop(1, 1), 2, {{}}};
  for (const char* block : {"F0.0", "F0.1", "B0.0", "B0.1"}) schedule.ranks[0].push_back(parse_block(block));
  EXPECT_THAT(peak_bytes(schedule, {{10, 10, 7}}), ElementsAre(27));
  EXPECT_THAT(peak_bytes(schedule, {{10, 10, 0}}), ElementsAre(20));
}

TEST(ActivationBytes, OfRecomputedUnitsAreWhatTheyKeepAndTheLargerUnitDuringTheBackward) {
  constexpr Recompute kAttnMlp{.core = true, .qkv = true, .mlp = true};
  for (const Implementation implementation : {Implementation::megatron, Implementation::suite}) {
    const auto bytes = [&](const Recompute& recompute) {
      return activation_bytes(job("llm-12.1b", {6144, 1, 4, false, recompute}, 1, implementation), {4, 0})[0];
    };
    const ActivationBytes whole = bytes({}), mlp = bytes({.mlp = true}), both = bytes(kAttnMlp);
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
    const Job j = job("llm-12.1b", {6144, 1, 4}, 4, implementation);
    const auto kept = [&](Unit unit) {
      double bytes = 0;
      for (const SavedTensor& tensor : saved_tensors(j.model, j.shape, implementation, unit))
        bytes += tensor.made_by_forward ? tensor.bytes : 0;
      return bytes;
    };
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
    Schedule schedule{"by hand", Placement::loop(1, 2), 1, {{}}};
    for (const char* block : {"F0.0", "F1.0", "B1.0", "I0.0", "W0.0"})
      schedule.ranks[0].push_back(parse_block(block));
    const Program program = lower(schedule, {0, 33}, {.embedding = true, .vision_layers = 32});
    const double peak = peak_saved_bytes(program, j.model, j.shape, implementation)[0];
    const std::vector<ActivationBytes> whole = activation_bytes(j, {0, 33});
    EXPECT_NEAR(peak, whole[0].until_I + whole[1].until_I, 0.01 * peak);  // and what the head's I makes
  }
}

TEST(ActivationBytes, OfOurOwnKernelsKeepForWWhatWNeeds) {
  const Job j = job("llm-12.1b", {6144, 1, 4}, 4, Implementation::suite);
  double for_weights = 0;
  for (const Unit unit : {Unit::attn, Unit::mlp})
    for (const SavedTensor& tensor : saved_tensors(j.model, j.shape, Implementation::suite, unit))
      for_weights += tensor.weight_gradient ? tensor.bytes : 0;
  EXPECT_DOUBLE_EQ(activation_bytes(j, {3, 1})[0].until_W, 3 * for_weights);
}

TEST(ActivationBytes, DoubleWithLayersTokensAndMicrobatchSize) {
  const auto bytes = [](Shape shape, int layers) {
    return activation_bytes(job("llm-12.1b", shape, 2), {layers, 0})[0];
  };
  const ActivationBytes base = bytes({3072, 1, 4}, 4);
  EXPECT_GT(base.until_I, 0);
  for (const ActivationBytes& twice :
       {bytes({3072, 1, 4}, 8), bytes({6144, 1, 4}, 4), bytes({3072, 2, 4}, 4)}) {
    EXPECT_DOUBLE_EQ(twice.until_I, 2 * base.until_I);
    EXPECT_DOUBLE_EQ(twice.until_W, 2 * base.until_W);
  }
  // The paper's s 3072 rows at size 2 hold what its s 6144 rows hold; TP does not halve what every rank
  // repeats.
  EXPECT_LT(bytes({3072, 1, 8}, 4).until_I, base.until_I);
  EXPECT_GT(bytes({3072, 1, 8}, 4).until_I, base.until_I / 2);
}

Schedule one_rank(const std::vector<std::string>& blocks, int chunks = 1) {
  Schedule schedule{"by hand", Placement::loop(1, chunks), 9, {{}}};
  for (const std::string& block : blocks) schedule.ranks[0].push_back(parse_block(block));
  return schedule;
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
  EXPECT_THAT(peak_host_bytes(lower(schedule, {1}, {.offload = 0.6}), bytes), ElementsAre(24));
  EXPECT_THAT(peak_host_bytes(lower(schedule, {1}, {}), bytes), ElementsAre(0));
}

TEST(PeakActivationBytes, WeighEachChunkByItsStageAndEachRankApart) {
  const std::vector<ActivationBytes> bytes{{1, 1}, {10, 10}, {100, 100}, {1000, 1000}};
  Schedule schedule{"by hand", Placement::v(2), 1, {}};  // rank 0 holds stages 0 and 3, rank 1 holds 1 and 2
  for (int rank = 0; rank < 2; ++rank) {
    auto& blocks = schedule.ranks.emplace_back();
    for (const char* block : {"F0.0", "F1.0", "B1.0", "B0.0"}) blocks.push_back(parse_block(block));
  }
  EXPECT_THAT(peak_bytes(schedule, bytes), ElementsAre(1001, 110));
  Schedule loop = schedule;
  loop.placement = Placement::loop(2, 2);
  EXPECT_THAT(peak_bytes(loop, bytes), ElementsAre(101, 1010));
}

}  // namespace
}  // namespace stp
