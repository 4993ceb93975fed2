// Today's recipes: the machine's values and the job's options that only they have, against closed forms.
#include <gtest/gtest.h>

#include <cmath>

#include "stp/cost/attention.h"
#include "stp/cost/gemm.h"
#include "stp/cost/hardware.h"
#include "stp/cost/memory.h"
#include "stp/program/lower.h"
#include "support/jobs.h"
#include "support/schedules.h"

namespace stp {
namespace {

Job recipe_job(int dp = 4) {
  Job j = job("llama3-70b",
              {8192,
               1,
               {.tp = 4,
                .cp = 2,
                .dp = dp,
                .sequence_parallel = true,
                .tp_overlap = TpOverlap::megatron,
                .zero = true}},
              4, Implementation::megatron_te);
  j.shape.gradient_bytes = 2;
  return j;
}
CostTable table_of_loop(const Job& j, const HardwareProfile& profile, int chunks = 5) {
  const Placement placement = Placement::loop(4, chunks);
  return hardware_cost_table(j, profile, std::vector(placement.stages(), 80 / placement.stages()), placement);
}

TEST(AttentionRates, AreTheMeasuredOnesAtTheirLengthsAndBetweenThemInBetween) {
  HardwareProfile profile = profile_of("h100");
  const Attention long_one{64, 8192, 8192, 128, true, false};
  const double sustained = attention_seconds(profile, long_one),
               share = std::exchange(profile.gemm_sustained, 1);
  EXPECT_DOUBLE_EQ(attention_seconds(profile, long_one), sustained * share);
  const auto rate = [&](double rows, double columns, bool causal, bool backward, double heads = 64) {
    const Attention attention{heads, rows, columns, 128, causal, backward};
    return attention.flops() / attention_seconds(profile, attention) / 1e12;
  };
  EXPECT_NEAR(rate(4096, 4096, true, false), 591, 1e-9);
  EXPECT_NEAR(rate(8192, 8192, true, true), 541, 1e-9);
  EXPECT_NEAR(rate(16384, 16384, false, false), 702, 1e-9);
  EXPECT_NEAR(rate(65536, 65536, false, true), 572, 1e-9);
  EXPECT_NEAR(rate(512, 512, true, false), 484, 1e-9);
  EXPECT_GT(rate(6000, 6000, true, false), 591);
  EXPECT_LT(rate(6000, 6000, true, false), 644);
  // A step of a ring: all queries, half the keys.
  EXPECT_GT(rate(4096, 2048, false, false), 633 * 0.99);
  EXPECT_LT(rate(4096, 2048, false, false), 671);
  // Between two lengths by the logarithm.
  EXPECT_NEAR(rate(5792.6, 5792.6, true, false), (591 + 644) / 2.0, 0.1);
  const Attention aside{64, 4096, 4096, 128, true, false};
  EXPECT_GT(attention_seconds(profile, aside, 16), 1.05 * attention_seconds(profile, aside));
  // Few heads leave SMs idle; many do not go beyond the measured rate by more than 132 SMs' last wave.
  EXPECT_LT(rate(2048, 2048, true, false, 8), rate(2048, 2048, true, false));
  EXPECT_LT(rate(4096, 4096, true, false, 512) / 591, 1.2);
  Job fused = recipe_job(), unfused = fused;
  unfused.implementation = Implementation::megatron;
  HardwareProfile slow = profile;
  for (auto& point : slow.attention_cudnn.points) point.causal_forward /= 2, point.full_forward /= 2;
  EXPECT_GT(table_of_loop(fused, slow).at(Unit::attn, UnitPass::F),
            table_of_loop(fused, profile).at(Unit::attn, UnitPass::F));
  EXPECT_EQ(table_of_loop(unfused, slow).at(Unit::attn, UnitPass::F),
            table_of_loop(unfused, profile).at(Unit::attn, UnitPass::F));
}

TEST(SustainedRate, DividesTheTimeOfGemmsAlone) {
  HardwareProfile profile = profile_of("h100");
  const Gemm gemm{4096, 8192, 8192};
  const double sustained = gemm_seconds(profile, gemm);
  const double share = std::exchange(profile.gemm_sustained, 1);
  EXPECT_DOUBLE_EQ(gemm_seconds(profile, gemm), sustained * share);
}

TEST(OverlapSms, SlowTheGemmsTheyStandFor) {
  const HardwareProfile profile = profile_of("h100");
  const CostTable usual = table_of_loop(recipe_job(), profile);
  Job j = recipe_job();
  j.recipe.overlap_sms = {.forward = {16, 60}, .input_gradient = {60, 16}, .weight_gradient = {16, 60}};
  const CostTable table = table_of_loop(j, profile);
  EXPECT_EQ(table.parts_of(Unit::attn, UnitPass::F).after, usual.parts_of(Unit::attn, UnitPass::F).after);
  EXPECT_GT(table.parts_of(Unit::mlp, UnitPass::F).after[0], usual.parts_of(Unit::mlp, UnitPass::F).after[0]);
  EXPECT_GT((*table.bulk)[0].after_I, (*usual.bulk)[0].after_I);
  EXPECT_EQ((*table.bulk)[1].after_I, (*usual.bulk)[1].after_I);
  EXPECT_EQ((*table.bulk)[0].W_late, (*usual.bulk)[0].W_late);
  EXPECT_GT((*table.bulk)[1].W_late, (*usual.bulk)[1].W_late);
}

// Four pieces of 1024 rows at all SMs; three are sent to their ranks, and the own is added up with theirs.
TEST(RingScatter, SendsRowsByCopyEnginesAndAddsThemUp) {
  const HardwareProfile profile = profile_of("h100");
  Job j = recipe_job();
  const CostTable pipeline = table_of_loop(j, profile);
  j.shape.strategy.ring_scatter = {false, true};
  const CostTable table = table_of_loop(j, profile);
  const auto& mlp = table.parts_of(Unit::mlp, UnitPass::F).after;
  EXPECT_DOUBLE_EQ(mlp[0], gemm_seconds(profile, {4096, 8192, 28672 / 4.0}) / 4 + 2e-6);
  EXPECT_EQ(table.parts_of(Unit::attn, UnitPass::F).after, pipeline.parts_of(Unit::attn, UnitPass::F).after);
  const double rows = 2.0 * 1024 * 8192;
  EXPECT_DOUBLE_EQ(table.piece_scatter[1], 10e-6 + rows / 370e9);
  EXPECT_DOUBLE_EQ(table.last_piece_scatter[1], 5 * rows / 2900e9);
  EXPECT_EQ(table.piece_scatter[0], pipeline.piece_scatter[0]);
  const Schedule schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1}, {.strategy = j.strategy()});
  const std::vector<double> seconds = op_seconds(program, table);
  std::vector<double> scatters;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].kind == OpKind::reduce_scatter && program.ops[op].part == UnitPart::after &&
        program.ops[op].unit == Unit::mlp)
      scatters.push_back(seconds[op]);
  EXPECT_EQ(scatters, (std::vector<double>{table.piece_scatter[1], table.piece_scatter[1],
                                           table.piece_scatter[1], table.last_piece_scatter[1]}));
}

// As B200's table for Nemotron 340B has it (Megatron-Bridge, comm_overlap.py): proj in a ring of 8, fc2 in 4
// pieces.
TEST(RingScatter, HasAPieceForEachRankWhereThePipelineHasFour) {
  Job j = recipe_job();
  j.shape.strategy.tp = 8;
  j.shape.strategy.ring_scatter = {true, false};
  const CostTable table = table_of_loop(j, profile_of("h100"));
  EXPECT_EQ(table.parts_of(Unit::attn, UnitPass::F).after.size(), 8U);
  EXPECT_EQ(table.parts_of(Unit::mlp, UnitPass::F).after.size(), 4U);
  EXPECT_EQ(table.parts_of(Unit::attn, UnitPass::I).after.size(), 1U);
  const Program program =
      lower(by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}}), {1}, {.strategy = j.strategy()});
  std::array<int, 2> pieces{};
  for (const Op& op : program.ops)
    if (op.kind == OpKind::reduce_scatter && op.part == UnitPart::after)
      ++pieces[static_cast<size_t>(op.unit)];
  EXPECT_EQ(pieces, (std::array{8, 4}));
}

// Pieces on several streams fill each other's last waves: 2560 columns of 1024 rows are 80 tiles for 132 SMs,
// all four pieces 320 in three waves. Where rows come late, the last piece runs alone.
TEST(OverlappedPieces, TakeTheTimeOfTheWholeGemmUnlessTheirRowsComeLate) {
  HardwareProfile profile = profile_of("h100");
  const Gemm whole{4096, 2560, 8192}, piece{1024, 2560, 8192};
  const double share = gemm_seconds(profile, whole) / 4, alone = gemm_seconds(profile, piece);
  ASSERT_GT(alone, 1.3 * share);
  const auto before = [&](Implementation implementation) {
    Job j = recipe_job();
    j.implementation = implementation;
    return table_of_loop(j, profile).parts_of(Unit::attn, UnitPass::F).before;
  };
  profile.within_node = {0, 1e18};
  std::vector<double> pieces = before(Implementation::megatron_te);
  for (int step = 0; step < 3; ++step) EXPECT_NEAR(pieces[step], share + profile.kernel_overhead_s, 1e-12);
  const double rest = pieces[3] - share;
  profile.within_node = {2 * share, 1e18};
  pieces = before(Implementation::megatron_te);
  EXPECT_NEAR(pieces[3] - rest, alone, 1e-12);
  profile.within_node = {share - (alone - share) / 6, 1e18};  // three times half of what it takes more alone
  EXPECT_NEAR(before(Implementation::megatron_te)[3] - rest, (alone + share) / 2, 1e-9);
  EXPECT_GT(before(Implementation::suite)[0], alone);  // on one stream
}

// The step moves 28 bytes (Adam), 6 (cast), 4 (norm) and 6 (copy of bf16 gradients) of each parameter of the
// rank's share, zeroes all gradients, and has the machine's fixed cost.
TEST(StepTime, IsOfTheShareButForZeroingAndHasAFixedCost) {
  HardwareProfile profile = profile_of("h100");
  profile.reduction_sms = 0;
  const Job j = recipe_job();
  const auto parameters = parameters_per_rank(j, std::vector(20, 4), Placement::loop(4, 5));
  const double bytes = parameters[1] * (44.0 / 8 + 2);
  EXPECT_DOUBLE_EQ(table_of_loop(j, profile).optimizer[1], bytes / profile.memory_bytes_per_s);
  profile.step_overhead_s = 0.01;
  EXPECT_DOUBLE_EQ(table_of_loop(j, profile).optimizer[1], bytes / profile.memory_bytes_per_s + 0.01);
  Job small = j;
  // Adam reads and writes six bytes less, and with the norm reads bf16 gradients in place of an fp32 copy.
  small.recipe.state_bytes = 6;
  EXPECT_NEAR(table_of_loop(j, profile).optimizer[1] - table_of_loop(small, profile).optimizer[1],
              parameters[1] * (12 + 2 + 2 + 6) / 8 / profile.memory_bytes_per_s, 1e-15);
}

TEST(StepTime, HasWhatReductionsTakeFromGemmsAndHidesTheFirstChunksGather) {
  HardwareProfile profile = profile_of("h100");
  const Job j = recipe_job();
  const CostTable with = table_of_loop(j, profile);
  profile.reduction_sms = 0;
  const CostTable without = table_of_loop(j, profile);
  double busy = 0;  // of all but the first chunk, whose collectives are exposed
  for (int stage = 5; stage < 20; stage += 4)
    busy += with.gradient_scatter[stage][0] + with.weight_gather[stage][0];
  EXPECT_NEAR(with.optimizer[1] - without.optimizer[1], busy * 16 / 132, 1e-12);
  Job plain = j;
  plain.shape.strategy.zero = false;
  profile.reduction_sms = 16;
  const double of_plain = table_of_loop(plain, profile).optimizer[1];
  profile.reduction_sms = 0;
  const CostTable plain_without = table_of_loop(plain, profile);
  busy = 0;
  for (int stage = 5; stage < 20; stage += 4) busy += plain_without.gradient_reduce[stage][0];
  EXPECT_NEAR(of_plain - plain_without.optimizer[1], busy * 16 / 132, 1e-12);
  Job hidden = j;
  hidden.recipe.gathers_in_step = true;
  const CostTable table = table_of_loop(hidden, profile);
  for (int stage = 0; stage < 20; ++stage) {
    const double step = without.optimizer[stage % 4] * 4 / 5;
    EXPECT_DOUBLE_EQ(
        table.weight_gather[stage][0],
        stage < 4 ? std::max(0.0, without.weight_gather[stage][0] - step) : without.weight_gather[stage][0]);
  }
}

// Of a first chunk in buckets only the last one's is exposed, as in Megatron-Core without pipeline.
TEST(StepTime, HasWhatReductionsOfAllBucketsButTheLastTake) {
  HardwareProfile profile = profile_of("h100");
  const Job j = job("llama3-8b", {8192, 1, {.dp = 8, .zero = true}}, 1, Implementation::megatron_te);
  const std::vector<Bucket> buckets{{{}, 2e9}, {{}, 3e9}, {{}, 1e9}};
  const auto table = [&] { return hardware_cost_table(j, profile, {32}, Placement::loop(1, 1), buckets); };
  const CostTable with = table();
  profile.reduction_sms = 0;
  const double busy = with.gradient_scatter[0][0] + with.gradient_scatter[0][1] + with.weight_gather[0][0] +
                      with.weight_gather[0][1];
  EXPECT_NEAR(with.optimizer[0] - table().optimizer[0], busy * 16 / 132, 1e-12);
}

// One all-gather of three fp32 numbers a token from each of four ranks; other losses all-reduce each of them.
TEST(LossOfTransformerEngine, GathersThreeNumbersATokenAtOnce) {
  HardwareProfile profile = profile_of("h100");
  profile.all_reduce_measured.clear();
  Job j = recipe_job();
  const auto head = [&] { return table_of_loop(j, profile).at(Unit::head, UnitPass::F); };
  double before = head();
  profile.all_reduce_bus_bytes_per_s /= 2;
  EXPECT_NEAR(head() - before, 3 * 4.0 * 4096 * 3 / 367e9, 1e-12);  // from three others
  before = head();
  profile.all_reduce_latency_s += 1;
  EXPECT_NEAR(head() - before, 1, 1e-9);
  j.implementation = Implementation::megatron;
  before = head();
  profile.all_reduce_latency_s += 1;
  EXPECT_NEAR(head() - before, 3, 1e-9);
}

TEST(Recomputation, RunsTheCollectivesOfAUnitAgain) {
  Job j = recipe_job();
  const auto run_again = [&](const Recompute& recompute, Unit unit) {
    const auto seconds = [&](double latency) {
      HardwareProfile profile = profile_of("h100");
      profile.all_reduce_measured.clear();
      profile.all_reduce_latency_s = latency;
      j.shape.strategy.recompute = recompute;
      CostTable table = table_of_loop(j, profile);
      return j.strategy().divides(unit) ? table.parts_of(unit, UnitPass::I).before.back()
                                        : table.at(unit, UnitPass::I);
    };
    return std::lround(seconds(1) - seconds(0));
  };
  const Recompute mlp{.mlp = true, .activation = true},
      both{.core = true, .qkv = true, .mlp = true, .activation = true};
  const auto expect = [&](int collectives) {
    for (const Unit unit : kLayerUnits) {
      EXPECT_EQ(run_again(both, unit), collectives);
      EXPECT_EQ(run_again(mlp, unit), unit == Unit::mlp ? collectives : 0);
    }
  };
  expect(1);  // the last piece's
  j.shape.strategy.tp_overlap = TpOverlap::none;
  expect(2);  // also where context parallelism divides attention
  j.shape.strategy.cp = 1;
  expect(2);
  j.implementation = Implementation::suite;  // only what it needs
  expect(0);
}

TEST(SpreadOfGpus, SlowsComputeByTheSlowestOfAll) {
  HardwareProfile profile = profile_of("h100");
  profile.gpu_spread = 0.01;
  const auto factor = [&](int dp) {
    const Work w =
        work(recipe_job().model, recipe_job().shape, Implementation::megatron_te, Unit::head, UnitPass::I);
    const double gemm = gemm_seconds(profile_of("h100"), w.gemms[0]);
    return (table_of_loop(recipe_job(dp), profile).at(Unit::head, UnitPass::I) -
            table_of_loop(recipe_job(dp), profile_of("h100")).at(Unit::head, UnitPass::I)) /
           gemm;
  };
  // Expected largest of n standard normal values: 2.51 of 100 (tables of order statistics), 3.24 of 1000.
  EXPECT_NEAR(factor(3), 0.0249, 0.001);      // 96 GPUs
  EXPECT_NEAR(factor(32), 0.0324, 0.001);     // 1024
  HardwareProfile slow = profile_of("h100");  // in which attention takes nearly all of the time
  for (auto& point : slow.attention_cudnn.points) point.causal_forward /= 1e4, point.full_forward /= 1e4;
  const double even = table_of_loop(recipe_job(3), slow).at(Unit::attn, UnitPass::F);
  slow.gpu_spread = 0.01;
  EXPECT_NEAR(table_of_loop(recipe_job(3), slow).at(Unit::attn, UnitPass::F) / even, 1.0249, 1e-3);
}

TEST(WorkingBytes, AreUserBuffersAndTheBackwardsTemporaries) {
  const Job j = recipe_job();
  const double hidden = 2.0 * 4096 * 8192, gradients = 2.0 * 4096 * 3 * 28672 / 4;
  const WorkingBytes bytes = working_bytes(1e9, j, false);
  EXPECT_DOUBLE_EQ(bytes.buffers, 12 * hidden);  // 0.8 GB
  EXPECT_DOUBLE_EQ(bytes.in_backward, gradients);
  EXPECT_DOUBLE_EQ(bytes.in_step, 4e9 / 8);
  EXPECT_DOUBLE_EQ(working_bytes(1e9, j, true).buffers, 13 * hidden);
  EXPECT_DOUBLE_EQ(bytes.beside(10e9), 12 * hidden + gradients);
  EXPECT_DOUBLE_EQ(bytes.beside(0), 12 * hidden + 0.5e9);
  Job plain = j;
  plain.shape.strategy.tp_overlap = TpOverlap::none;
  EXPECT_DOUBLE_EQ(working_bytes(1e9, plain, false).in_backward, gradients + 3 * hidden);
  plain.shape.gradient_bytes = 4;
  EXPECT_EQ(working_bytes(1e9, plain, false).in_step, 0);
  plain.shape.strategy.sequence_parallel = false;  // so that nothing is gathered
  EXPECT_EQ(working_bytes(1e9, plain, true).buffers, 0);
  EXPECT_DOUBLE_EQ(working_bytes(1e9, plain, true).in_backward, gradients + 2 * hidden);
  EXPECT_DOUBLE_EQ(working_bytes(1e9, plain, true, 0).in_backward, 2.0 * 128256 * 8192 / 4);
  Job alone = plain;
  alone.shape.strategy.tp = 1;
  EXPECT_EQ(working_bytes(1e9, alone, true).buffers, 0);
  EXPECT_DOUBLE_EQ(working_bytes(1e9, alone, true).in_backward, 4 * gradients + 2 * hidden);
  Job ungated = j;
  ungated.model = model("nemotron4-15b");
  EXPECT_DOUBLE_EQ(working_bytes(1e9, ungated, false).in_backward, 2.0 * 4096 * 2 * ungated.model.ffn / 4);
  plain.implementation = Implementation::megatron;
  EXPECT_EQ(working_bytes(1e9, plain, true).beside(0), 0);
}

// A loss that hands on an fp32 gradient leaves a bf16 one to be made. The embedding's gradient of all its
// rows needs memory that its own stage's tensors have left.
TEST(WorkingBytes, AreThoseOfTheHeadOrTheEmbeddingIfTheseAreMore) {
  Job j = recipe_job();
  const double hidden = 2.0 * 4096 * 8192, logits = 2.0 * 4096 * 128256 / 4, mlp = 2.0 * 4096 * 3 * 28672 / 4,
               table = 2.0 * 128256 * 8192 / 4;
  EXPECT_DOUBLE_EQ(working_bytes(0, j, true, 0).in_backward, hidden + table);
  EXPECT_DOUBLE_EQ(working_bytes(0, j, true, 3e8).in_backward, hidden + table - 3e8);
  EXPECT_DOUBLE_EQ(working_bytes(0, j, true, 1e9).in_backward, mlp);
  j.implementation = Implementation::megatron_te_2_18;
  EXPECT_DOUBLE_EQ(working_bytes(0, j, true, 1e9).in_backward, hidden + logits);
  EXPECT_DOUBLE_EQ(working_bytes(0, j, false, 1e9).in_backward, mlp);
  j.implementation = Implementation::megatron;
  EXPECT_EQ(working_bytes(0, j, true, 0).in_backward, 0);
}

// Megatron-Bridge's card of PR 3107: peaks of Llama 3 70B in FP8 on 32 H100, v = 5. With one byte a weight,
// and 2h + f bytes less of a layer's saved tensors, rank 0's state and activations come within 2 % of 58.8
// and 53.2 GiB. The third row, 50.2 GiB, is 8.4 more, which nothing explains: the test holds what we say.
TEST(MemoryCard, IsMetInTwoOfItsThreeRows) {
  struct Row {
    int tp, pp, dp;
    double gib, off;
  };
  for (const Row& row : {Row{4, 4, 2, 58.8, -0.01}, {4, 8, 1, 53.2, 0.02}, {8, 4, 1, 50.2, -0.168}}) {
    const Job j =
        job("llama3-70b", {4096, 1, {.tp = row.tp, .dp = row.dp, .sequence_parallel = true, .zero = true}},
            row.pp, Implementation::megatron_te);
    const std::vector<int> layers(5 * row.pp, 16 / row.pp);
    const int in_flight = 2 * (row.pp - 1) + 4 * row.pp + 1;
    const double less = layers[0] * j.shape.tokens() * (2 * j.model.hidden + j.model.ffn) / row.tp;
    const double bytes =
        parameters_per_rank(j, layers, Placement::loop(row.pp, 5))[0] * (1 + 2 + 12.0 / row.dp) +
        in_flight * (activation_bytes(j, layers)[0].until_I - less);
    EXPECT_NEAR(bytes / (1 << 30) / row.gib - 1, row.off, 0.006) << row.tp << row.pp;
  }
}

// bf16 weights and gradients, 12, 10 or 6 bytes over dp · cp.
TEST(ParameterBytes, OfRecipesAreFourAndASharedState) {
  Job j = recipe_job();
  for (const int state : {12, 10, 6}) {
    j.recipe.state_bytes = state;
    const ParameterBytes bytes = parameter_bytes(8e9, j);
    EXPECT_EQ(bytes.weights + bytes.gradients, 32e9);
    EXPECT_EQ(bytes.optimizer, state * 1e9);
    Job undone = j;  // a copy of the state and of the share's weights
    undone.shape.strategy.post_validation = true;
    EXPECT_EQ(parameter_bytes(8e9, undone).optimizer, (2 * state + 2) * 1e9);
  }
}

}  // namespace
}  // namespace stp
