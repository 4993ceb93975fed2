// Contention and shared processors by hand, and the laws that every timeline obeys: they leave no other one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "stp/program/lower.h"
#include "support/by_events.h"
#include "support/hand.h"
#include "support/programs.h"
#include "support/schedules.h"

namespace stp {
namespace {

// ---- contention, by hand ----

TEST(Contention, SlowsBothUntilTheShorterIsDone) {
  Hand hand(1);
  const OpId gemm = hand.compute(0, 1), reduce = hand.all_reduce(0, 1);
  const Timeline timeline = hand.run({0.5, 0.8});
  EXPECT_DOUBLE_EQ(timeline.end[reduce], 1.25);                   // 1 / 0.8
  EXPECT_DOUBLE_EQ(timeline.end[gemm], 1.25 + (1 - 0.5 * 1.25));  // what is left, alone
  EXPECT_DOUBLE_EQ(timeline.ranks[0].compute_s, 1.625);
}

TEST(Contention, ReproducesThePapersOverlappedTimesOfTable11) {
  for (const auto& [gemm_s, reduce_s, together_s] :
       {std::tuple{8.605, 3.364, 9.251}, {0.334, 1.643, 1.685}}) {
    Hand hand(1);
    hand.compute(0, gemm_s);
    hand.all_reduce(0, reduce_s);
    EXPECT_NEAR(hand.run(kPaper).step_s, together_s, 0.002 * together_s);
  }
}

// The engine knows nothing else of what an op is.
TEST(Contention, LeavesOpsAloneThatDoNotContendAndThoseBesideThem) {
  for (const bool compute : {false, true}) {
    Hand hand(1);
    hand.program.strategy.tp_overlap = TpOverlap::megatron;
    hand.program.strategy.tp = 2;
    const OpId gemm = hand.compute(0, 2), reduce = hand.all_reduce(0, 1), second = hand.all_reduce(0, 0.25);
    hand.program.ops[compute ? gemm : reduce].kind = OpKind::row_exchange;  // which does not contend
    const Timeline timeline = hand.run({0.5, 0.5});
    EXPECT_DOUBLE_EQ(timeline.end[reduce], 1);
    EXPECT_DOUBLE_EQ(timeline.end[second], compute ? 1.25 : 1.5);
    EXPECT_DOUBLE_EQ(timeline.end[gemm], compute ? 2 : 2.25);
  }
}

TEST(Contention, DoesNotDependOnTheOrderInWhichAProgramListsItsStreams) {
  const auto end = [](const std::vector<StreamKind>& kinds) {
    Hand hand(1);
    for (const StreamKind kind : kinds) hand.stream(kind, 0);
    hand.compute(0, 1);
    hand.all_reduce(0, 1);
    return hand.run({0.5, 0.8}).step_s;
  };
  EXPECT_DOUBLE_EQ(end({StreamKind::compute, StreamKind::tp}), 1.625);
  EXPECT_DOUBLE_EQ(end({StreamKind::tp, StreamKind::compute}), 1.625);
}

// ---- random programs ----

struct Case {
  Program program;
  std::vector<double> seconds;
  Contention contention;
};

// A random order on a random placement, random layers, release and seconds; integers and eighths make ties.
Case random_case(std::mt19937& random, bool post_validation = false) {
  const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
  const Placement placement =
      random() % 2 ? Placement::v(p) : Placement::loop(p, 1 + static_cast<int>(random() % 2));
  std::vector<int> layers(placement.stages());
  for (int& count : layers) count = static_cast<int>(random() % 3);
  Lowering lowering{kReleases[random() % std::size(kReleases)],
                    random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                    post_validation || random() % 2 == 0,
                    random() % 4 ? BraidPolicy::static_merge : BraidPolicy::sequential};
  lowering.strategy.post_validation = post_validation;
  lowering.strategy.cp = 1 + static_cast<int>(random() % 3);
  lowering.strategy.cp_method = static_cast<CpMethod>(random() % 2);
  lowering.strategy.sequence_parallel = random() % 2 == 0;
  if (lowering.strategy.sequence_parallel && random() % 2 == 0) {
    lowering.strategy.tp_overlap = TpOverlap::megatron;
    lowering.strategy.tp = 2 + static_cast<int>(random() % 3);
  }
  if (lowering.strategy.tp_overlap == TpOverlap::none && random() % 4 == 0)
    lowering.strategy.tp_overlap = TpOverlap::domino;
  lowering.data_parallel = random() % 3 == 0;
  lowering.strategy.zero = random() % 2 == 0;
  lowering.tied = lowering.embedding = random() % 3 == 0;
  if (random() % 4 == 0) lowering.strategy.offload = 0.5;
  Case c{lower(random_schedule(random, placement, m), layers, lowering), {}, {}};
  const auto style = random() % 3;
  std::uniform_real_distribution<double> real(0, 2), rate(0.3, 1);
  for (size_t op = 0; op < c.program.ops.size(); ++op) {
    const double cost = style == 0   ? static_cast<double>(random() % 4)
                        : style == 1 ? static_cast<double>(random() % 17) / 8
                                     : real(random);
    c.seconds.push_back(random() % 8 == 0 ? 0 : cost);
  }
  c.contention = {rate(random), rate(random)};
  return c;
}

// The laws that every timeline of `c` obeys, with either engine.
void expect_lawful(const Case& c, const Timeline& timeline, const Contention& contention) {
  const Program& program = c.program;
  ASSERT_EQ(timeline.end.size(), program.ops.size());
  const double tolerance = 1e-9 * (1 + timeline.step_s);
  std::vector<std::vector<OpId>> by_stream(program.streams.size());
  double last = 0;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    double earliest = 0;
    for (const OpId needed : program.dependencies(op)) earliest = std::max(earliest, timeline.end[needed]);
    auto& stream = by_stream[program.on_stream[op]];
    if (!stream.empty()) earliest = std::max(earliest, timeline.end[stream.back()]);
    stream.push_back(op);
    // An op starts exactly when its stream and its dependencies are ready.
    EXPECT_NEAR(timeline.start[op], earliest, tolerance) << describe(program, op);
    last = std::max(last, timeline.end[op]);
  }
  EXPECT_EQ(timeline.step_s, last);

  // The work done by an op is its seconds: at full rate alone, at its share while both kinds overlap.
  std::map<std::pair<int, StreamKind>, const std::vector<OpId>*> streams;
  for (size_t i = 0; i < by_stream.size(); ++i)
    streams[{program.streams[i].rank, program.streams[i].kind}] = &by_stream[i];
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const ProgramStream& stream = program.stream_of(op);
    double overlap = 0, share = 1;
    if (stream.kind == StreamKind::compute || stream.kind == StreamKind::tp) {
      const bool compute = stream.kind == StreamKind::compute;
      share = compute ? contention.compute : contention.all_reduce;
      for (const OpId other : *streams.at({stream.rank, compute ? StreamKind::tp : StreamKind::compute}))
        if (program.contends(op) && program.contends(other))
          overlap += std::max(0.0, std::min(timeline.end[op], timeline.end[other]) -
                                       std::max(timeline.start[op], timeline.start[other]));
    }
    EXPECT_NEAR(timeline.end[op] - timeline.start[op] - overlap * (1 - share), c.seconds[op], tolerance)
        << describe(program, op);
  }

  ASSERT_EQ(timeline.ranks.size(), static_cast<size_t>(program.schedule.pp()));
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    const RankTime& time = timeline.ranks[rank];
    double busy = 0, work = 0;
    for (const OpId op : *streams.at({rank, StreamKind::compute})) {
      busy += timeline.end[op] - timeline.start[op];
      work += c.seconds[op];
    }
    EXPECT_NEAR(time.compute_s, busy, tolerance);
    EXPECT_NEAR(time.compute_s + time.pp_bubble_s + time.tp_bubble_s, timeline.step_s, tolerance)
        << "rank " << rank;
    EXPECT_GE(time.pp_bubble_s, -tolerance);
    EXPECT_GE(time.tp_bubble_s, 0);
    EXPECT_GE(timeline.step_s, work - tolerance) << "rank " << rank << " cannot be that fast";
  }
}

// ---- shared processors, by hand ----

TEST(SharedProcessors, AreTakenInTurnsByMoreWorkersThanThereAre) {
  Hand hand(3);
  const OpId one = hand.compute(0, 1), two = hand.compute(1, 2), three = hand.compute(2, 2);
  const Timeline timeline = hand.run({}, {{1, 1}, 1});
  EXPECT_DOUBLE_EQ(timeline.end[one], 1.5);  // three on two processors
  EXPECT_DOUBLE_EQ(timeline.end[two], 2.5);  // then each has its own
  EXPECT_DOUBLE_EQ(timeline.end[three], 2.5);
  EXPECT_DOUBLE_EQ(timeline.ranks[0].compute_s, 1.5);
}

TEST(SharedProcessors, GoAtTheSpeedOfSoManyBusy) {
  Hand hand(2);
  const OpId brief = hand.compute(0, 0.8), lasting = hand.compute(1, 1);
  const Timeline timeline = hand.run({}, {{1, 0.8, 0.5}, 1});
  EXPECT_DOUBLE_EQ(timeline.end[brief], 1);
  EXPECT_DOUBLE_EQ(timeline.end[lasting], 1.2);  // the last 0.2 alone
}

TEST(SharedProcessors, ServeEveryRankThatAProgramsRankStandsFor) {
  Hand hand(1);
  const OpId gemm = hand.compute(0, 1), after = hand.all_reduce(0, 1, {gemm});
  const Timeline timeline = hand.run({}, {{1, 0.9}, 4});
  EXPECT_DOUBLE_EQ(timeline.end[gemm], 4 / (2 * 0.9));  // four workers on two processors
  EXPECT_DOUBLE_EQ(timeline.end[after], 8 / (2 * 0.9));
}

TEST(SharedProcessors, StandStillWhileNothingRunsAndSlowContendedOpsOnTop) {
  Hand hand(1);
  const OpId gemm = hand.compute(0, 1), reduce = hand.all_reduce(0, 1);
  const Timeline timeline = hand.run({0.5, 0.8}, {{1}, 1});  // and both on one processor
  EXPECT_DOUBLE_EQ(timeline.end[reduce], 2 * 1.25);
  EXPECT_DOUBLE_EQ(timeline.end[gemm], 2 * 1.25 + (1 - 0.5 * 1.25));
}

TEST(SharedProcessors, InPlentyChangeNothing) {
  std::mt19937 random(612);
  for (int draw = 0; draw < 100; ++draw) {
    const Case c = random_case(random);
    const Timeline alone = simulate(c.program, c.seconds, c.contention),
                   plenty = simulate(c.program, c.seconds, c.contention, {std::vector(64, 1.0), 1});
    for (size_t op = 0; op < alone.end.size(); ++op) EXPECT_NEAR(alone.end[op], plenty.end[op], 1e-9);
  }
}

TEST(SharedProcessors, OfWhichThereIsOneTakeAllWorkOneAfterTheOther) {
  std::mt19937 random(613);
  for (int draw = 0; draw < 100; ++draw) {
    const Case c = random_case(random);
    double work = 0;
    for (const double each : c.seconds) work += each;
    for (const int per_op : {1, 4})
      EXPECT_NEAR(simulate(c.program, c.seconds, {}, {{1}, per_op}).step_s, per_op * work, 1e-9 * (1 + work));
  }
}

// ---- the same, from event to event ----

// To the last bit: what happens at one time is in the same order.
TEST(Simulate, GivesEveryOpTheTimesOfASimulationFromEventToEvent) {
  std::mt19937 random(616);
  for (int draw = 0; draw < 1000; ++draw) {
    const Case c = random_case(random, draw % 8 == 0);
    const Processors shared{{1, 0.9, 0.7}, 1 + static_cast<int>(random() % 3)};
    const auto expect_same = [&](const Contention& contention, const Processors& processors) {
      const Timeline expected = by_events::simulate(c.program, c.seconds, contention, processors),
                     timeline = simulate(c.program, c.seconds, contention, processors);
      ASSERT_EQ(timeline.start, expected.start) << "draw " << draw;
      ASSERT_EQ(timeline.end, expected.end) << "draw " << draw;
      ASSERT_EQ(timeline.step_s, expected.step_s);
      for (size_t rank = 0; rank < expected.ranks.size(); ++rank) {
        ASSERT_EQ(timeline.ranks[rank].compute_s, expected.ranks[rank].compute_s);
        ASSERT_EQ(timeline.ranks[rank].pp_bubble_s, expected.ranks[rank].pp_bubble_s);
        ASSERT_EQ(timeline.ranks[rank].tp_bubble_s, expected.ranks[rank].tp_bubble_s);
      }
    };
    expect_same({}, {});
    expect_same(c.contention, {});
    if (draw % 4 == 0) expect_same(c.contention, shared);
  }
}

// ---- laws ----

TEST(TimelineLaws, HoldForRandomProgramsWithContentionAndWithout) {
  std::mt19937 random(602);
  int delayed = 0;
  for (int draw = 0; draw < 600; ++draw) {
    const Case c = random_case(random);
    const Timeline alone = simulate(c.program, c.seconds),
                   contended = simulate(c.program, c.seconds, c.contention);
    expect_lawful(c, alone, {});
    expect_lawful(c, contended, c.contention);
    delayed += contended.step_s > alone.step_s + 1e-9;
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw;
  }
  EXPECT_GT(delayed, 100);
}

TEST(TimelineLaws, HoldForStpOrders) {
  std::mt19937 random(604);
  std::uniform_real_distribution<double> real(0, 2);
  for (const auto& [p, m] : {std::pair{1, 4}, {2, 9}, {4, 16}, {6, 20}}) {
    Case c{lower(stp_schedule(p, m), std::vector<int>(2 * p, 2), {}), {}, kPaper};
    for (size_t op = 0; op < c.program.ops.size(); ++op) c.seconds.push_back(real(random));
    expect_lawful(c, simulate(c.program, c.seconds), {});
    expect_lawful(c, simulate(c.program, c.seconds, kPaper), kPaper);
  }
}

TEST(TimelineLaws, OfStepsThatRepeatAddUp) {
  std::mt19937 random(615);
  for (int draw = 0; draw < 200; ++draw) {
    const Case c = random_case(random, true);
    const Timeline repeated = simulate_repeated(c.program, c.seconds, c.contention);
    for (const RankTime& rank : repeated.ranks) {
      EXPECT_NEAR(rank.compute_s + rank.pp_bubble_s + rank.tp_bubble_s, repeated.step_s,
                  1e-9 * (1 + repeated.step_s));
      EXPECT_GE(rank.pp_bubble_s, -1e-9);
    }
  }
}

TEST(TimelineLaws, ScaleWithTheUnitOfTime) {
  std::mt19937 random(608);
  for (int draw = 0; draw < 50; ++draw) {
    const Case c = random_case(random);
    std::vector<double> eightfold = c.seconds;
    for (double& cost : eightfold) cost *= 8;  // a power of two: exact
    EXPECT_EQ(simulate(c.program, eightfold).step_s, 8 * simulate(c.program, c.seconds).step_s);
    EXPECT_EQ(simulate(c.program, eightfold, c.contention).step_s,
              8 * simulate(c.program, c.seconds, c.contention).step_s);
  }
}

}  // namespace
}  // namespace stp
