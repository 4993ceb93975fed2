// The lower bound of a configuration's step time against simulated steps: none may be below it.
#include "stp/cost/step_bound.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "baselines/registry.h"
#include "stp/base/error.h"
#include "stp/cost/timed_braid.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/jobs.h"
#include "support/programs.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

double simulated(const Program& program, const CostTable& table, const Contention& contention) {
  const std::vector<double> seconds = op_seconds(program, table);
  return program.strategy.post_validation ? simulate_repeated(program, seconds, contention).step_s
                                          : simulate(program, seconds, contention).step_s;
}

// Draws schedules, options and costs.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  bool chance(int in) { return random_() % in == 0; }
  int up_to(int most) { return 1 + static_cast<int>(random_() % most); }
  double seconds() { return chance(6) ? 0 : std::uniform_real_distribution<double>(0, 2)(random_); }
  double share() { return std::uniform_real_distribution<double>(0.3, 1)(random_); }

  // Of the registry, or random; none if the generator refuses the size.
  std::optional<Schedule> schedule() {
    const bool both_ways = chance(20);
    const int p = both_ways ? 2 * up_to(3) : up_to(6), m = chance(3) ? p * up_to(4) : up_to(4 * p);
    if (both_ways) return make_schedule(find_generator("dualpipe"), {p, 2 * p + 2 * up_to(p)});
    if (chance(3)) {
      const int v = up_to(3);
      const Placement placement = v == 2      ? Placement::v(p)
                                  : chance(2) ? Placement::wave(p, v)
                                              : Placement::loop(p, v);
      return random_schedule(random_, placement, m);
    }
    const auto& all = generators();
    const Generator& generator = *all[random_() % all.size()];
    GeneratorRequest request{.pp = p, .microbatches = m};
    if (generator.cost_aware && chance(2)) request.costs = {seconds() + 0.1, seconds(), seconds(), seconds()};
    try {
      return make_schedule(generator, request);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  std::vector<int> layers(const Placement& placement) {
    const int depth = placement.depth();
    std::vector<int> layers = chance(2) ? std::vector<int>(depth, up_to(2)) : random_layers(random_, depth);
    for (int stage = depth; stage < placement.stages(); ++stage) layers.push_back(layers[stage - depth]);
    return layers;
  }

  Strategy strategy(const Schedule& schedule) {
    Strategy strategy{.pp = schedule.pp()};
    strategy.cp = chance(4) ? up_to(3) : 1;
    strategy.cp_method = static_cast<CpMethod>(random_() % 2);
    strategy.sequence_parallel = chance(2);
    const bool shared = vocabulary_of(schedule) != Vocabulary::whole;
    if (chance(4)) strategy.recompute = kRecomputes[random_() % std::size(kRecomputes)].choice;
    if (strategy.sequence_parallel && chance(3)) strategy.tp_overlap = TpOverlap::megatron;
    if (strategy.tp_overlap == TpOverlap::none && chance(8) && !shared)
      strategy.tp_overlap = TpOverlap::domino;
    strategy.tp = up_to(4);
    strategy.dp = up_to(2);
    strategy.zero = strategy.replicas() > 1 && chance(2) && !shared;
    strategy.post_validation = chance(8) && !shared && schedule.placement.pipelines() == 1;
    if (chance(6)) strategy.offload = share();
    return strategy;
  }

  Lowering lowering(const Strategy& strategy, const Schedule& schedule) {
    constexpr BraidPolicy kPolicies[] = {BraidPolicy::static_merge, BraidPolicy::sequential,
                                         BraidPolicy::timed, BraidPolicy::paired};
    return {.release = kReleases[random_() % std::size(kReleases)],
            .backward = chance(2) ? BackwardOrder::suite : BackwardOrder::megatron,
            .optimizer = strategy.post_validation || chance(2),
            .braid = chance(3) ? kPolicies[random_() % std::size(kPolicies)] : BraidPolicy::static_merge,
            .strategy = strategy,
            .data_parallel = strategy.replicas() > 1,
            .embedding = chance(2),
            .tied = chance(4) && vocabulary_of(schedule) == Vocabulary::whole &&
                    schedule.placement.pipelines() == 1};
  }

  CostTable table(const Schedule& schedule, const std::vector<int>& layers, const Lowering& lowering) {
    CostTable table;
    const bool fast = chance(3);  // little communication, as on real machines
    const auto communication = [&] { return fast ? seconds() / 10 : seconds(); };
    for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head, Unit::embedding})
      for (const UnitPass pass : kUnitPasses)
        if (has_pass(unit, pass)) table.at(unit, pass) = seconds();
    const Division division = lowering.strategy.division();
    for (const Unit unit : kLayerUnits)
      for (const UnitPass pass : {UnitPass::F, UnitPass::I}) set_parts(table, division, unit, pass);
    if (division.overlaps()) table.bulk = {{{seconds(), seconds()}, {seconds(), seconds()}}};
    for (double* const each :
         {&table.kv_exchange, &table.qkv_all_to_all, &table.output_all_to_all, &table.all_reduce,
          &table.reduce_scatter, &table.all_gather, &table.row_exchange, &table.piece_scatter[0],
          &table.piece_scatter[1], &table.last_piece_scatter[0], &table.last_piece_scatter[1],
          &table.transfer_within_node, &table.transfer_between_nodes, &table.embedding_reduce,
          &table.gradient_reduce_per_layer, &table.number_within_node, &table.number_between_nodes,
          &table.offload_per_layer, &table.reload_per_layer})
      *each = communication();
    table.transfer_beside_another = table.transfer_between_nodes * up_to(2);
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      table.node_of_rank.push_back(rank / 2);
      table.optimizer.push_back(seconds());
      table.gradient_norm.push_back(seconds());
    }
    int count = 0;
    for (const int each : layers) count += each;
    if (chance(5))
      for (const auto& [unit, pass] :
           {std::pair{Unit::mlp, UnitPass::F}, {Unit::mlp, UnitPass::W_late}, {Unit::head, UnitPass::I}})
        for (int rank = 0; rank < schedule.pp(); ++rank) table.by_rank[{unit, pass}].push_back(seconds());
    table.vocabulary = {communication(), communication(), communication(), communication(), 0};
    if (chance(5))
      for (int i = 0; i < count; ++i) table.layer_factors.push_back(2 * share());
    if (chance(5))
      for (int i = 0; i < schedule.microbatches; ++i) table.microbatch_factors.push_back(2 * share());
    return table;
  }

  Contention contention() { return chance(3) ? Contention{} : Contention{share(), share()}; }

 private:
  void set_parts(CostTable& table, const Division& division, Unit unit, UnitPass pass) {
    if (!division.divides(unit)) return;
    const auto steps = [&](UnitPart part) {
      std::vector<double> each(division.steps(unit, pass, part));
      for (double& step : each) step = seconds();
      return each;
    };
    table.parts_of(unit, pass) = {seconds(), steps(UnitPart::before), steps(UnitPart::core),
                                  steps(UnitPart::after)};
  }

  std::mt19937 random_;
};

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
    lowering.buckets = megatron_bucket_rule(j.model, strategy.tp, strategy.replicas());
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
