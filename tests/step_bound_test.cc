// The lower bound of a configuration's step time against simulated steps: none may be below it.
#include "stp/cost/step_bound.h"

#include <gtest/gtest.h>

#include "stp/cost/timed_braid.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "support/draw.h"
#include "support/effort.h"
#include "support/jobs.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

double simulated(const Program& program, const CostTable& table, const Contention& contention) {
  const std::vector<double> seconds = op_seconds(program, table);
  return program.strategy.post_validation ? simulate_repeated(program, seconds, contention).step_s
                                          : simulate(program, seconds, contention).step_s;
}

// What a test has seen.
struct Seen {
  int cases = 0, near = 0, of_memory = 0, shared = 0, both_ways = 0;
};

void expect_below(const Program& program, const Lowering& lowering, const CostTable& table,
                  const Contention& contention, int microbatches, Seen& seen) {
  const Placement& placement = program.schedule.placement;
  const double step = simulated(program, table, contention), most = step * (1 + 1e-9) + 1e-12;
  const double bound = step_bound(placement, microbatches, program.layers_per_stage, lowering, table,
                                  contention, program.vocabulary);
  EXPECT_LE(bound, most) << program.schedule.name;
  const std::vector<int> peaks = peak_activations(program.schedule);
  const double with_memory = step_bound(placement, microbatches, program.layers_per_stage, lowering, table,
                                        contention, program.vocabulary, *std::ranges::max_element(peaks));
  EXPECT_LE(with_memory, most) << program.schedule.name;
  ++seen.cases;
  seen.near += bound > step / 1.1;
  seen.of_memory += with_memory > bound;
  seen.shared += program.vocabulary != Vocabulary::whole;
  seen.both_ways += placement.pipelines() > 1;
}

void expect_below(Draw& draw, int draws, Seen& seen) {
  for (int i = 0; i < draws; i += kStride) {
    const auto schedule = draw.schedule();
    if (!schedule) continue;
    const std::vector<int> layers = draw.layers(schedule->placement);
    Lowering lowering = draw.lowering(draw.strategy(*schedule), *schedule);
    const CostTable table = draw.table(*schedule, layers, lowering);
    if (is_by_times(lowering.braid)) lowering.order = braid_order(lowering.braid, table, lowering);
    expect_below(lower(*schedule, layers, lowering), lowering, table, draw.contention(),
                 schedule->microbatches, seen);
    ASSERT_FALSE(testing::Test::HasFailure())
        << "draw " << i << ", release " << static_cast<int>(lowering.release);
  }
}

TEST(StepBound, IsNeverAboveAStepOfAnyScheduleUnderAnyOptions) {
  Draw draw(1201);
  Seen seen;
  expect_below(draw, 3600, seen);
  if (kStride > 1) return;
  EXPECT_GT(seen.cases, 1500);
  EXPECT_GT(seen.near, 100);
  EXPECT_GT(seen.of_memory, 5);
  EXPECT_GT(seen.shared, 100);
  EXPECT_GT(seen.both_ways, 50);
}

TEST(StepBound, IsNeverAboveAStepOnHardware) {
  Draw draw(1202);
  Seen seen;
  const HardwareProfile profile = a800();
  for (int i = 0; i < 500; i += kStride) {
    auto schedule = draw.schedule();
    if (!schedule) continue;
    const bool shared = vocabulary_of(*schedule) != Vocabulary::whole;
    const bool vision =
        draw.chance(4) && schedule->placement.stages() > 1 && !shared && schedule->placement.pipelines() == 1;
    Strategy strategy = draw.strategy(*schedule);
    strategy.tp = 1 << draw.up_to(3);
    if (vision) strategy = {.tp = strategy.tp, .dp = strategy.dp, .pp = strategy.pp, .zero = strategy.dp > 1};
    Shape shape{.seq = 3072, .microbatch_size = 1, .strategy = strategy, .vision_tokens = vision ? 3136 : 0};
    shape.shares_vocabulary = shared;
    const Job j{model(vision ? "mllm-14.9b" : "llm-12.1b"), shape, Implementation::megatron_te};
    std::vector<int> layers = draw.layers(schedule->placement);
    if (vision) layers.front() = 0;
    Lowering lowering = draw.lowering(strategy, *schedule);
    lowering.embedding = lowering.optimizer = true;
    if (vision) lowering.vision_layers = j.model.vision.layers;
    lowering.buckets = megatron_bucket_rule(j.model, strategy);
    if (is_by_times(lowering.braid)) lowering.braid = BraidPolicy::static_merge;
    const int microbatches = schedule->microbatches;
    const Program program = lower(*std::move(schedule), layers, lowering);
    const CostTable table =
        hardware_cost_table(j, profile, layers, program.schedule.placement, program.first_buckets);
    expect_below(program, lowering, table, draw.chance(2) ? Contention{0.83, 0.9} : Contention{},
                 microbatches, seen);
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << i;
  }
  if (kStride == 1) {
    EXPECT_GT(seen.near, (seen.cases - seen.shared - seen.both_ways) / 4);
  }
}

// Plain 1F1B without weight gradients is the best order of its placement.
TEST(StepBound, EqualsTheStepOf1f1bWhereNoOrderIsBetter) {
  CostTable table;
  for (const Unit unit : kLayerUnits) table.at(unit, UnitPass::F) = 0.5, table.at(unit, UnitPass::I) = 1;
  for (const int p : {1, 2, 4, 8})
    for (const int m : {1, p, 5 * p}) {
      EXPECT_DOUBLE_EQ(
          step_bound(Placement::loop(p, 1), m, std::vector(p, 1), {}, table, {}, Vocabulary::whole),
          3.0 * (m + p - 1));
    }
}

// With one chunk a rank Megatron-Core's transfers are batched.
TEST(StepBound, IsTheSameOfReleasesThatGiveTheSameProgram) {
  CostTable table = unit_costs(0.75);
  table.transfer_between_nodes = table.transfer_beside_another = 2;
  table.node_of_rank = {0, 1, 2};
  const auto bound = [&](Release release) {
    return step_bound(Placement::loop(3, 1), 9, {1, 1, 1}, {.release = release}, table, {},
                      Vocabulary::whole);
  };
  EXPECT_GT(bound(Release::megatron_batched), bound(Release::block));
  EXPECT_EQ(bound(Release::megatron), bound(Release::megatron_batched));
  EXPECT_EQ(bound(Release::megatron_0_18), bound(Release::megatron_batched));
}

// A rank that computes and sums at full speed hides the shorter; at shares c and a it hides less: the closed
// form of the linear program of one rank (docs/architecture.md, section 6).
TEST(StepBound, CountsTheCollectivesThatContentionLetsNobodyHide) {
  for (const auto& [c, a] : {std::pair{1.0, 1.0}, {0.8, 0.9}, {0.9, 0.6}, {0.5, 0.5}}) {
    const double work = 6,
                 sums = 4 * 0.75;  // of one layer and microbatch: F, I, W of 2 each; four all-reduces
    CostTable table = unit_costs(0.75);
    for (const Unit unit : kLayerUnits)
      for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late}) table.at(unit, pass) = 1;
    const int m = 1000;
    const double hidden = std::min(1.0, (1 - c) / a), beside = std::min(1.0, (1 - a) / c);
    const double each = std::max(work + hidden * sums, sums + beside * work);
    EXPECT_NEAR(step_bound(Placement::loop(1, 1), m, {1}, {}, table, {c, a}, Vocabulary::whole) / m, each,
                1e-9);
  }
}

TEST(StepBound, OfALimitOfActivationsIsOnePassAtATimeAtOne) {
  const CostTable table = unit_costs(0);
  const int p = 4, m = 10;  // with one activation each microbatch passes the pipeline alone, but for its W
  const auto bound = [&](int limit) {
    return step_bound(Placement::loop(p, 1), m, std::vector(p, 1), {}, table, {}, Vocabulary::whole, limit);
  };
  EXPECT_DOUBLE_EQ(bound(1), m * (2.0 * p + 1));
  EXPECT_GT(bound(1), bound(2));
  EXPECT_GT(bound(2), bound(0));
}

}  // namespace
}  // namespace stp
