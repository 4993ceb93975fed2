// Totals of steps of which repetitions were left out, against complete simulations.
#include "stp/simulate/steady_state.h"

#include <gtest/gtest.h>

#include <map>

#include "stp/cost/timed_braid.h"
#include "stp/schedule/validate.h"
#include "support/draw.h"
#include "support/effort.h"

namespace stp {
namespace {

// An order of many microbatches; none if the generator refuses their number.
std::optional<Schedule> long_schedule(Draw& draw, const Generator& generator) {
  const int p = 2 * draw.up_to(3);
  GeneratorRequest request{.pp = p, .microbatches = p * (16 + draw.up_to(24))};
  if (draw.chance(3)) request.microbatches += draw.up_to(p);
  if (generator.cost_aware)
    request.costs = {draw.seconds() + 0.5, draw.seconds() + 0.5, draw.seconds() + 0.5};
  try {
    return draw.perhaps_shared(make_schedule(generator, request));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// Whether the totals could be found, from any number of microbatches.
bool expect_totals(const Schedule& schedule, const std::vector<int>& layers, const Lowering& lowering,
                   const CostTable& table, const Contention& contention) {
  for (int first = schedule.pp(); 4 * first <= schedule.microbatches; first *= 2) {
    const auto shortened = shorten(schedule, first);
    if (!shortened) continue;
    const Program program = lower(shortened->schedule, layers, lowering);
    const std::vector<double> seconds = op_seconds(program, table);
    Timeline timeline = simulate(program, seconds, contention);
    if (!add_repetitions(program, seconds, *shortened, timeline)) continue;
    const Program whole = lower(schedule, layers, lowering);
    const Timeline expected = simulate(whole, op_seconds(whole, table), contention);
    const double most = 1e-9 * expected.step_s;
    EXPECT_NEAR(timeline.step_s, expected.step_s, most);
    for (size_t rank = 0; rank < expected.ranks.size(); ++rank) {
      EXPECT_NEAR(timeline.ranks[rank].compute_s, expected.ranks[rank].compute_s, most);
      EXPECT_NEAR(timeline.ranks[rank].pp_bubble_s, expected.ranks[rank].pp_bubble_s, most);
      EXPECT_NEAR(timeline.ranks[rank].tp_bubble_s, expected.ranks[rank].tp_bubble_s, most);
    }
    EXPECT_EQ(peak_activations(shortened->schedule), peak_activations(schedule));
    return true;
  }
  return false;
}

TEST(SteadyState, TotalsAreThoseOfTheWholeStep) {
  Draw draw(3301);
  std::map<std::string, int> cases, steady;
  for (int i = 0; i < 750; i += kStride) {
    const Generator& generator = *generators()[i % generators().size()];
    const auto schedule = generator.slow ? std::nullopt : long_schedule(draw, generator);
    if (!schedule) continue;
    const std::vector<int> layers = draw.layers(schedule->placement);
    Strategy strategy = draw.strategy(*schedule);
    strategy.post_validation = false;
    Lowering lowering = draw.lowering(strategy, *schedule);
    CostTable table = draw.table(*schedule, layers, lowering);
    table.microbatch_factors.clear();
    if (is_by_times(lowering.braid)) lowering.order = braid_order(lowering.braid, table, lowering);
    ++cases[generator.name];
    steady[generator.name] += expect_totals(*schedule, layers, lowering, table, draw.contention());
    ASSERT_FALSE(HasFailure()) << "draw " << i << ", " << schedule->name;
  }
  for (const auto& [name, count] : cases)
    if (name != "gpipe" && kStride == 1) {
      EXPECT_GT(3 * steady[name], count) << name;
    }
}

TEST(SteadyState, IsRefusedWhereRepetitionsDifferOrAreCoupledOtherwise) {
  const auto shortened = shorten(make_schedule(find_generator("1f1b"), {.pp = 4, .microbatches = 64}), 8);
  ASSERT_TRUE(shortened);
  const Program program = lower(shortened->schedule, {1, 1, 1, 1}, {});
  const std::vector<double> seconds(program.ops.size(), 1);
  const auto has_totals = [&](const Program& of, const std::vector<double>& op_seconds) {
    Timeline timeline = simulate(of, op_seconds);
    const double step_s = timeline.step_s;
    const bool found = add_repetitions(of, op_seconds, *shortened, timeline);
    EXPECT_EQ(timeline.step_s > step_s, found);
    return found;
  };
  EXPECT_TRUE(has_totals(program, seconds));
  std::vector<double> longer = seconds;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].microbatch == shortened->first + shortened->period) longer[op] += 1e-6;
  EXPECT_FALSE(has_totals(program, longer));
  Program coupled = program;
  coupled.depends.back() = 0;  // the last op that waits does so for the first of all
  EXPECT_FALSE(has_totals(coupled, seconds));
}

}  // namespace
}  // namespace stp
