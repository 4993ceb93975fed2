#include "stp/schedule/list_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stp/schedule/timing.h"
#include "support/schedules.h"

namespace stp {
namespace {

TEST(Step, IsTheHopOfItsActionOnTheV) {
  for (const int p : {1, 2, 5}) {
    const Placement v = Placement::v(p);
    for (int rank = 0; rank < p; ++rank)
      for (const Step step : kSteps)
        EXPECT_EQ(v_hop(p, rank, step), hop_of(2 * p, v.stage(rank, chunk_of(step)), !is_forward(step)));
  }
}

// A list schedule that chooses at random among the ready steps, or one W.
struct RandomScheduler {
  RandomScheduler(int p, int m, const PassCosts& costs, int seed)
      : random(seed), durations(step_costs(costs)), state(p, m, costs.p2p), order(p) {
    state.run_by_time([this](int rank, double now) { return choose(rank, now); });
  }

  double choose(int rank, double now) {
    EXPECT_GE(now, last);  // in the order of time
    last = now;
    EXPECT_GE(now, state.free(rank));
    std::vector<Step> ready;
    for (const Step step : kSteps)
      if (state.arrival(rank, step) <= now) ready.push_back(step);
    if (state.deferred(rank) > 0) ready.push_back(kW);
    if (ready.empty()) return state.next_arrival(rank, now);
    const Step step = ready[random() % ready.size()];
    order[rank].push_back(step);
    state.run(rank, step, now + durations[step]);
    return state.free(rank);
  }

  std::mt19937 random;
  std::array<double, 5> durations;
  ListScheduler state;
  StepOrder order;
  double last = 0;
};

// A rank that never idles while a step is ready runs every step as early as its order allows; so three ways
// to time the order agree. (Costs are sums of powers of two, so sums are exact.)
TEST(ListScheduler, RunsByTimeWhatTheTimingOfItsOrderSays) {
  for (const int p : {1, 2, 3, 5}) {
    for (const PassCosts& costs : {PassCosts{}, PassCosts{1, 1.5, 0.25, 0.125}, PassCosts{0, 1, 1, 2}}) {
      for (int seed = 0; seed < 10; ++seed) {
        const int m = 1 + seed;
        SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m) + " W=" + std::to_string(costs.W));
        const RandomScheduler run(p, m, costs, seed);
        const Schedule schedule = schedule_of(run.order, m);
        validate(schedule);
        const Timing timing = time_blocks(schedule, costs);
        double latest = 0;
        for (int rank = 0; rank < p; ++rank) {
          latest = std::max(latest, run.state.free(rank));
          EXPECT_EQ(timing[rank].back().end, run.state.free(rank));
          EXPECT_EQ(run.state.alive(rank), 0);
          EXPECT_EQ(run.state.deferred(rank), 0);
          EXPECT_THAT(run.state.done(rank), testing::Each(m));
        }
        EXPECT_EQ(makespan(run.order, m, costs), latest);
      }
    }
  }
}

TEST(ListScheduler, CountsWhatARankHolds) {
  ListScheduler state(1, 3);
  state.run(0, kF0, 1);
  state.run(0, kF1, 2);
  state.run(0, kF0, 3);
  EXPECT_EQ(state.alive(0), 3);
  EXPECT_EQ(state.deferred(0), 0);
  state.run(0, kI1, 4);
  EXPECT_EQ(state.alive(0), 3);
  EXPECT_EQ(state.deferred(0), 1);
  state.run(0, kW, 5);
  EXPECT_EQ(state.alive(0), 2);
  EXPECT_EQ(state.deferred(0), 0);
  EXPECT_THAT(state.done(0), testing::ElementsAre(2, 1, 1, 0));
  EXPECT_EQ(state.free(0), 5);
  EXPECT_EQ(state.arrival(0, kI0), 4);
  EXPECT_EQ(state.arrival(0, kI1), kNever);  // its F1 is not run

  state.restart(0);
  EXPECT_EQ(state.free(0), 0);
  EXPECT_EQ(state.alive(0), 0);
  EXPECT_EQ(state.arrival(0, kF0), 0);
  EXPECT_EQ(state.arrival(0, kF1), kNever);
}

TEST(ListScheduler, RefusesAnOrderThatDeadlocks) {
  EXPECT_THROW(makespan({{kF0, kI1, kF1, kI0, kW, kW}}, 1, {}), std::logic_error);
  EXPECT_EQ(makespan({{kF0, kF1, kI1, kI0, kW, kW}}, 1, {}), 6);
}

TEST(ListScheduler, StopsWhereBeforeReturnsFalse) {
  ListScheduler state(2, 4);
  int steps = 0;
  const std::vector<Step> forwards(4, kF0);
  state.follow({forwards, forwards}, {}, [&](int, size_t, double) { return ++steps < 3; });
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(state.done(0)[kF0] + state.done(1)[kF0], 2);
}

}  // namespace
}  // namespace stp
