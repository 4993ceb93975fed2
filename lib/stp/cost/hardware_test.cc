// The cost table of a job on a hardware profile, and the parameters of each pipeline rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "stp/cost/attention.h"
#include "stp/cost/gemm.h"
#include "stp/cost/hardware.h"
#include "stp/cost/memory.h"
#include "stp/model/offload.h"
#include "stp/model/partition.h"
#include "stp/program/lower.h"
#include "support/jobs.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::ElementsAre;

// ---- the hardware table ----

TEST(HardwareCostTable, AddsUpGemmsAttentionTrafficAndLaunches) {
  for (const Implementation implementation : {Implementation::megatron, Implementation::suite,
                                              Implementation::megatron_2022, Implementation::megatron_te}) {
    const Job j = job("llm-12.1b", {6144, 1, {.tp = 4}}, 4, implementation);
    const HardwareProfile profile = a800();
    const CostTable table = table_of(j, profile);
    for (const Unit unit : kUnits) {
      for (const UnitPass pass : kUnitPasses) {
        const Work w = work(j.model, j.shape, implementation, unit, pass);
        double expected = w.kernels * 2e-6;
        for (const Gemm& gemm : w.gemms) expected += gemm_seconds(profile, gemm);
        for (const Attention& attention : w.attentions) expected += attention_seconds(profile, attention);
        const double factor = implementation == Implementation::megatron ? profile.elementwise_factor : 1;
        expected += (w.replicated_bytes * factor + w.sharded_bytes) / 1610e9;  // what is fused is as counted
        if (unit == Unit::head && pass == UnitPass::F)  // maximum, target and sum of the loss, fp32 per token
          expected += implementation == Implementation::megatron_te
                          ? half_all_reduce_seconds(profile, 3 * 6144 * 4 * 4, 4)
                          : 3 * all_reduce_seconds(profile, 6144 * 4, 4);
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
    return table_of(job("llm-12.1b", {seq, 1, {.tp = 8}}, 2, implementation), profile)
        .at(Unit::mlp, UnitPass::F);
  };
  const Implementation megatron = Implementation::megatron, suite = Implementation::suite;
  const int kernels = work(model("llm-12.1b"), {64, 1, 8}, megatron, Unit::mlp, UnitPass::F).kernels;
  EXPECT_DOUBLE_EQ(mlp(64, megatron, 1e-3), kernels * 1e-3);
  EXPECT_EQ(mlp(6144, megatron, 8e-6), mlp(6144, megatron, 0));
  EXPECT_EQ(mlp(64, suite, 1e-3), mlp(64, suite, 0));
}

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
  const Job j = job("llm-12.1b", {6144, 1, {.tp = 8}}, 2);
  const HardwareProfile profile = a800();
  const CostTable table = table_of(j, profile);
  constexpr double bytes = 60.0 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(table.all_reduce, all_reduce_seconds(profile, bytes, 8));
  EXPECT_DOUBLE_EQ(table.transfer_within_node, 10e-6 + bytes / 160e9);
  EXPECT_DOUBLE_EQ(table.transfer_between_nodes, 20e-6 + bytes / 23.5e9);
  EXPECT_EQ(table_of(job("llm-12.1b", {6144, 1}, 4), profile).all_reduce, 0);
}

TEST(HardwareCostTable, LeavesWithFluxOfEachCollectiveWhatItsGemmDoesNotHide) {
  const HardwareProfile profile = a800();
  Job j = job("llm-12.1b", {6144, 1, {.tp = 8, .sequence_parallel = true}}, 2);
  const CostTable plain = table_of(j, profile);
  j.shape.strategy.tp_overlap = TpOverlap::flux;
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
  const Lowering lowering{.strategy = j.strategy()};
  EXPECT_LT(pass_costs(table, 4, lowering).F, pass_costs(plain, 4, lowering).F);
}

TEST(HardwareCostTable, DividesByTheRanksTheElementwiseTimeThatSequenceParallelismDivides) {
  HardwareProfile profile = a800();
  const auto forward = [&](bool sequence_parallel) {
    return table_of(job("llm-12.1b", {6144, 1, {.tp = 8, .sequence_parallel = sequence_parallel}}, 2),
                    profile)
        .at(Unit::mlp, UnitPass::F);
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
  const CostTable plain = table_of(job("llm-12.1b", {6144, 1, {.tp = 8}}, 2), profile);
  const CostTable table =
      table_of(job("llm-12.1b", {6144, 1, {.tp = 8, .sequence_parallel = true}}, 2), profile);
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
  Job j = job("llm-12.1b", {6144, 1, {.tp = 8}}, 2);
  j.scatter_transfers = true;
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_between_nodes,
                   20e-6 + bytes / 8 / 23.5e9 + half_all_reduce_seconds(profile, bytes, 8));
  j.shape.strategy.sequence_parallel = true;  // nothing to gather: the next stage wants no more
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_between_nodes, 20e-6 + bytes / 8 / 23.5e9);
  j.scatter_transfers = false;
  EXPECT_DOUBLE_EQ(table_of(j, profile).transfer_within_node, 10e-6 + bytes / 8 / 160e9);
}

// 8 GPUs a node; replicas lie between pipeline ranks.
TEST(HardwareCostTable, KnowsWhereNodesEnd) {
  const auto nodes = [](int tp, int pp, int dp = 1) {
    return table_of(job("llm-12.1b", {6144, 1, {.tp = tp, .dp = dp}}, pp), a800()).node_of_rank;
  };
  EXPECT_THAT(nodes(8, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(nodes(4, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(nodes(2, 8), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(nodes(1, 2), ElementsAre(0, 0));
  EXPECT_THAT(nodes(2, 4, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(nodes(4, 2, 2), ElementsAre(0, 1));
  // Of eight and four ranks on each side of a node's end, some replica sends to another node.
  EXPECT_THAT(nodes(4, 2, 3), ElementsAre(-1, -2));
}

TEST(HardwareCostTable, ReducesGradientsWhereTheReplicasAre) {
  const HardwareProfile profile = a800();  // 8 GPUs a node
  const auto reduced = [&](int tp, int dp, int gradient_bytes) {
    const Shape shape{.seq = 6144,
                      .microbatch_size = 1,
                      .strategy = {.tp = tp, .dp = dp},
                      .gradient_bytes = gradient_bytes};
    return table_of(job("llm-12.1b", shape, 2), profile).gradient_reduce[1].front();
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
  const Job j = job("llm-12.1b", {6144, 1, {.tp = 2, .dp = 4, .zero = true}}, 2);
  const Schedule schedule = schedule_of(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  for (const bool zero : {false, true}) {
    const Program program = lower(schedule, {3, 2},
                                  {.strategy = {.zero = zero},
                                   .data_parallel = true,
                                   .buckets = megatron_bucket_rule(j.model, {.tp = 2, .dp = 4}),
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
  const auto exchange = [](const HardwareProfile& on, int tp, int cp) {
    const Job j = job("llm-12.1b", {6144, 1, {.tp = tp, .cp = cp}}, 2);
    return std::pair(table_of(j, on).at(Exchange::kv), exchange_bytes(j.model, j.shape, Exchange::kv));
  };
  const auto [within, bytes] = exchange(profile, 2, 4);
  EXPECT_DOUBLE_EQ(within, 10e-6 + bytes / 160e9);
  const auto [between, fewer] =
      exchange(profile, 4, 4);  // of eight GPUs of a node four have their neighbour elsewhere
  EXPECT_DOUBLE_EQ(between, 20e-6 + fewer / 23.5e9);
  HardwareProfile shared = profile;
  shared.adapters_per_node = 2;  // the four are on one
  EXPECT_DOUBLE_EQ(exchange(shared, 4, 4).first, 20e-6 + fewer / (23.5e9 / 4));
  EXPECT_EQ(exchange(profile, 4, 1).first, 0);
}

// Of 8 GPUs a node, each with an adapter: a share of the heads for each other rank, those of other nodes
// through the adapter.
TEST(HardwareCostTable, PricesAllToAllsByWhatLeavesTheGpuAndTheNode) {
  HardwareProfile profile = a800();
  const auto table = [&](int tp, int cp) {
    const Job j = job("llm-12.1b", {12288, 1, {.tp = tp, .cp = cp, .cp_method = CpMethod::all_to_all}}, 2);
    return std::pair(table_of(j, profile), j);
  };
  // Read and written before and behind it.
  const auto copies = [&](double bytes) { return 4 * bytes / profile.memory_bytes_per_s; };
  const auto [within, four] = table(2, 4);
  const double qkv = exchange_bytes(four.model, four.shape, Exchange::qkv),
               out = exchange_bytes(four.model, four.shape, Exchange::output);
  EXPECT_EQ(out, 2.0 * 12288 / 4 * four.model.q_heads * four.model.head_dim / 2);
  EXPECT_EQ(qkv, out + exchange_bytes(four.model, four.shape, Exchange::kv));
  EXPECT_DOUBLE_EQ(within.at(Exchange::qkv), 10e-6 + qkv * 3 / 4 / 160e9 + copies(qkv));
  EXPECT_DOUBLE_EQ(within.at(Exchange::output), 10e-6 + out * 3 / 4 / 160e9 + copies(out));
  EXPECT_EQ(within.at(Exchange::kv), 0);
  EXPECT_EQ(within.parts_of(Unit::attn, UnitPass::F).core.size(), 1U);
  const auto [between, two] = table(4, 4);  // two of the four are on the other node
  const double half = exchange_bytes(two.model, two.shape, Exchange::qkv);
  EXPECT_DOUBLE_EQ(between.at(Exchange::qkv), 20e-6 + half * 2 / 4 / 23.5e9 + copies(half));
  profile.adapters_per_node = 2;
  EXPECT_DOUBLE_EQ(table(4, 4).first.at(Exchange::qkv),
                   20e-6 + half * 2 / 4 / (23.5e9 * 2 / 8) + copies(half));
}

TEST(HardwareCostTable, PricesStepsOfOverlappedUnitsByTheirShapesAndTheSmsThatTheyHave) {
  HardwareProfile profile = a800();
  profile.kernel_overhead_s = profile.elementwise_factor = 0;
  profile.memory_bytes_per_s = 1e30;
  Job j = job("llm-12.1b", {4096, 1, {.tp = 4, .sequence_parallel = true}}, 4);
  const CostTable plain = table_of(j, profile);
  j.shape.strategy.tp_overlap = TpOverlap::megatron;
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
  EXPECT_DOUBLE_EQ(table.at(Exchange::rows), 10e-6 + bytes / 4 / 160e9);
  EXPECT_EQ(table.last_piece_scatter, table.piece_scatter);
  EXPECT_DOUBLE_EQ(table.piece_scatter[1], half_all_reduce_seconds(profile, bytes / 4, 4));
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
  for (const auto& [pp, waiting] : std::map<int, int>{{1, 0}, {2, 4}, {4, 8}}) {
    const Job j = job("llm-12.1b",
                      {4096, 1, {.tp = 4, .sequence_parallel = true, .tp_overlap = TpOverlap::megatron}}, pp);
    profile.receive_sms = 4;
    const CostTable table = table_of(j, profile);
    profile.receive_sms = 0;
    HardwareProfile fewer = profile;
    fewer.peak_flops *= 1.0 * (profile.sms - waiting) / profile.sms;
    fewer.sms -= waiting;
    const CostTable expected = table_of(j, fewer);
    for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
      for (const UnitPass pass : kUnitPasses)
        EXPECT_DOUBLE_EQ(table.at(unit, pass), expected.at(unit, pass)) << pp;
    const CostTable::Parts& parts = table.parts_of(Unit::mlp, UnitPass::F);
    EXPECT_DOUBLE_EQ(parts.before[0], expected.parts_of(Unit::mlp, UnitPass::F).before[0]);
    EXPECT_DOUBLE_EQ(parts.after[0], expected.parts_of(Unit::mlp, UnitPass::F).after[0]);
  }
}

TEST(HardwareCostTable, ReducesGradientsOverTheRingToo) {
  const HardwareProfile profile = a800();
  const auto reduced = [&](int cp, int dp) {
    return table_of(job("llm-12.1b", {6144, 1, {.tp = 2, .cp = cp, .dp = dp}}, 2), profile).gradient_reduce;
  };
  EXPECT_EQ(reduced(4, 1), reduced(1, 4));
  EXPECT_EQ(reduced(2, 2), reduced(1, 4));
  EXPECT_THAT(reduced(1, 1), testing::IsEmpty());
}

TEST(HardwareCostTable, ReducesTiedEmbeddingsBetweenTheFirstAndTheLastRank) {
  const HardwareProfile profile = a800();
  const auto reduced = [&](const char* name, const Placement& placement, int tp) {
    const Job j = job(name, {2048, 1, {.tp = tp, .dp = 2}}, placement.ranks());
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

TEST(HardwareCostTable, SumsOnlyTheShareOfZeroOverPipelines) {
  const HardwareProfile profile = a800();
  const std::vector<int> layers(4, 2);
  for (const bool zero : {false, true}) {
    const double shares = zero ? 4 : 1;
    const auto reduced = [&](const char* name, Implementation implementation, const Placement& placement) {
      const Job j = job(name, {2048, 1, {.dp = 4, .zero = zero}}, 2, implementation);
      return hardware_cost_table(j, profile, layers, placement);
    };
    const auto seconds = [&](double parameters) { return all_reduce_seconds(profile, 4 * parameters, 2); };
    const ModelConfig two = model("llm-12.1b"), tied = model("gpt-22b");
    EXPECT_DOUBLE_EQ(
        reduced("llm-12.1b", Implementation::megatron, Placement::bidirectional(2)).pipeline_reduce[0],
        seconds((4 * two.layer_parameters() + 2 * two.vocabulary_parameters()) / shares));
    for (const auto& [implementation, parts] :
         {std::pair{Implementation::suite, shares}, {Implementation::megatron, 1.0}})  // which sums all
      EXPECT_DOUBLE_EQ(reduced("gpt-22b", implementation, Placement::loop(2, 2)).embedding_reduce,
                       seconds(tied.vocabulary_parameters() / parts));
  }
}

TEST(HardwareCostTable, SharesAnAdapterAmongNeighbouringGpus) {
  HardwareProfile profile = a800();
  const auto transfer = [&](int tp, int adapters) {
    profile.adapters_per_node = adapters;
    const Job j = job("llm-26.3b", {4096, 1, {.tp = tp}}, 4);
    return (table_of(j, profile).transfer_between_nodes - 20e-6) * 23.5e9 / hidden_bytes(j.model, j.shape);
  };
  EXPECT_DOUBLE_EQ(transfer(8, 4), 2);
  EXPECT_DOUBLE_EQ(transfer(4, 4), 2);  // two of the four adapters have no sender
  EXPECT_DOUBLE_EQ(transfer(1, 4), 1);
  EXPECT_DOUBLE_EQ(transfer(4, 1), 4);
  EXPECT_DOUBLE_EQ(transfer(8, 16), 0.5);
}

// At TP8 each rank is a node: rank 1's braid sends to two others. At TP4 one of the two is on its node.
TEST(HardwareCostTable, SharesAnAdapterBetweenTheSendsOfABlockToTwoNodes) {
  const auto sends = [](int tp, bool share) {
    Job j = job("llm-26.3b", {4096, 1, {.tp = tp}}, 3);
    j.sends_share_adapter = share;
    const CostTable table = table_of(j, a800());
    const Schedule schedule = schedule_of(
        Placement::loop(3, 1), 2,
        {{"F0.0", "F0.1", "B0.0", "B0.1"}, {"F0.0", "F0.1&B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
    const Program program = lower(schedule, {1, 1, 1}, {});
    const std::vector<double> seconds = op_seconds(program, table);
    std::vector<double> bandwidths;  // of rank 1's sends, in adapters
    for (OpId op = program.rank_begin[1]; op < program.rank_begin[2]; ++op)
      if (program.ops[op].kind == OpKind::transfer)
        bandwidths.push_back(hidden_bytes(j.model, j.shape) / (seconds[op] - 20e-6) / 23.5e9);
    return bandwidths;
  };
  using testing::DoubleEq, testing::Gt;
  EXPECT_THAT(sends(8, true), ElementsAre(DoubleEq(1), DoubleEq(0.5), DoubleEq(0.5), DoubleEq(1)));
  EXPECT_THAT(sends(8, false), ElementsAre(DoubleEq(1), DoubleEq(1), DoubleEq(1), DoubleEq(1)));
  EXPECT_THAT(sends(4, true), ElementsAre(DoubleEq(1), DoubleEq(1), Gt(1), Gt(1)));
}

TEST(OpSeconds, OfCopiesAreBytesOverTheHostLinks) {
  const HardwareProfile profile = profile_of("h20");
  const Job job{model("llm-12.1b"), {6144, 1, {.tp = 4, .pp = 4, .offload = 0.4}}, Implementation::megatron};
  const std::vector<int> layers{4, 4, 4, 4, 4, 4, 4, 2};
  const CostTable table = hardware_cost_table(job, profile, layers, Placement::v(4));
  const double bytes = offloaded_bytes(job.model, job.shape, job.implementation, {4}, 0.4)[0];
  const auto by_stage = activation_bytes(job, layers);
  EXPECT_LE(bytes, 0.4 * by_stage[0].until_I);
  EXPECT_GT(bytes, 0.35 * by_stage[0].until_I);
  EXPECT_EQ(by_stage[0].offloaded, bytes);
  EXPECT_EQ(table.offload[0], bytes / profile.device_to_host_bytes_per_s);
  EXPECT_EQ(table.reload[0], bytes / profile.host_to_device_bytes_per_s);
}

// ---- parameters ----

TEST(ParametersPerRank, AreThoseOfItsStages) {
  std::vector<std::pair<Job, std::vector<int>>> cases{{vision_job(), kVisionLayers}};
  for (const auto& [name, pp, tp] : {std::tuple{"llm-12.1b", 4, 4},
                                     {"llm-12.1b", 2, 8},
                                     {"llm-12.1b", 8, 2},
                                     {"llm-26.3b", 8, 4},
                                     {"llm-26.3b", 4, 8}})
    cases.emplace_back(job(name, {4096, 1, {.tp = tp}}, pp), paper_partition(model(name).layers, 2 * pp));
  for (const int pp : {1, 2})
    cases.emplace_back(job("gpt-175b", {2048, 1, {.tp = 8}}, pp), std::vector(2 * pp, 48 / pp));
  for (const auto& [j, layers] : cases) {
    const int pp = j.strategy().pp;
    for (const Placement& placement : {Placement::v(pp), Placement::loop(pp, 2)}) {
      SCOPED_TRACE(j.model.name + " pp " + std::to_string(pp));
      const int first = placement.rank_of(0), last = placement.rank_of(2 * pp - 1);
      std::vector<double> expected(pp, 0);
      for (int stage = 0; stage < placement.stages(); ++stage)
        expected[placement.rank_of(stage)] += layers[stage] * j.model.layer_parameters();
      expected[first] += j.model.vision_parameters() + j.model.vocabulary_parameters() +
                         double{1} * j.strategy().tp * j.model.positions * j.model.hidden;  // each has all
      if (!j.model.tied() || first != last) expected[last] += j.model.vocabulary_parameters();
      const std::vector<double> parameters = parameters_per_rank(j, layers, placement);
      ASSERT_EQ(parameters.size(), expected.size());
      for (int rank = 0; rank < pp; ++rank)
        EXPECT_DOUBLE_EQ(parameters[rank] * j.strategy().tp, expected[rank]);
      if (!j.model.tied()) {  // all but the last norm
        EXPECT_NEAR(std::accumulate(expected.begin(), expected.end(), 0.0),
                    j.model.parameters() - j.model.hidden, 1);
      }
      const CostTable table = hardware_cost_table(j, a800(), layers, placement);
      for (int rank = 0; rank < pp; ++rank)
        EXPECT_DOUBLE_EQ(table.optimizer[rank],
                         parameters[rank] * optimizer_bytes(Implementation::megatron) / 1610e9);
    }
  }
}

}  // namespace
}  // namespace stp
