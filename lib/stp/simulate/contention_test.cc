// Contention and shared processors by hand, and random Programs against a simulation from event to event.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stp/program/lower.h"
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

// The engine knows nothing else of what an op is.
TEST(Contention, LeavesOpsAloneThatDoNotContendAndThoseBesideThem) {
  for (const bool compute : {false, true}) {
    Hand hand(1);
    hand.program.strategy.tp_overlap = TpOverlap::megatron;
    hand.program.strategy.tp = 2;
    const OpId gemm = hand.compute(0, 2), reduce = hand.all_reduce(0, 1), second = hand.all_reduce(0, 0.25);
    Op& op = hand.program.ops[compute ? gemm : reduce];  // which does not contend
    op.kind = OpKind::exchange;
    op.exchange = Exchange::rows;
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

// ---- the same, from event to event ----

// The simulation from event to event: whatever ends first of all ranks is next. It is slow and plain.
//
// The running ops on a rank's compute and tp streams slow each other down: rates change whenever one of the
// two becomes busy or idle.
//
// Shared processors slow all ops alike, so they do not change which ends first: the simulation uses the time
// that would pass without sharing, and `clock_` is the time that passes.
class Replay {
 public:
  Replay(const Program& program, std::span<const double> seconds, const Contention& contention,
         const Processors& processors)
      : program_(program), seconds_(seconds), processors_(processors), streams_(program.streams.size()) {
    timeline_.start.assign(program.ops.size(), -1);
    timeline_.end.assign(program.ops.size(), -1);
    for (OpId op = 0; op < program.ops.size(); ++op) streams_[program.on_stream[op]].ops.push_back(op);
    if (contention.compute == 1 && contention.all_reduce == 1 && processors.rates.empty()) return;
    for (uint32_t one = 0; one < streams_.size(); ++one)
      for (uint32_t other = 0; other < streams_.size(); ++other)
        if (kind(one) == StreamKind::compute && kind(other) == StreamKind::tp &&
            program.streams[one].rank == program.streams[other].rank) {
          streams_[one].partner = other;
          streams_[one].contended_rate = contention.compute;
          streams_[other].partner = one;
          streams_[other].contended_rate = contention.all_reduce;
        }
  }

  Timeline run() && {
    start_what_can(0);
    for (;;) {
      const auto first = std::ranges::min_element(streams_, {}, &Stream::end);
      if (first == streams_.end() || first->end == kNever) break;
      end_op(*first, first->end);
    }
    for (const Stream& stream : streams_)
      if (stream.next < stream.ops.size())
        throw std::runtime_error("deadlock: " + describe(program_, stream.ops[stream.next]) +
                                 " never starts");
    for (const double end : timeline_.end) timeline_.step_s = std::max(timeline_.step_s, end);
    timeline_.ranks = rank_times(program_, timeline_);
    return std::move(timeline_);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Stream {
    std::vector<OpId> ops;
    size_t next = 0;            // in `ops`: the first that has not ended
    uint32_t partner = kNone;   // the tp stream of a compute stream, and the other way round
    double contended_rate = 1;  // its share of full speed while the partner is busy
    bool busy = false;
    bool contends = true;  // its current op
    double left = 0;       // seconds of work, at full speed
    double rate = 1;       // its current share of full speed
    double since = 0;      // when `left` was true
    double end = kNever;   // of the current op, at the current rate
  };

  [[nodiscard]] StreamKind kind(uint32_t stream) const { return program_.streams[stream].kind; }

  // Starts the stream's next op if it is ready. `was_busy`: the stream ended an op at this moment, so that
  // starting another changes nothing for its partner.
  bool try_start(Stream& stream, double now, bool was_busy = false) {
    if (stream.busy || stream.next == stream.ops.size()) return false;
    const OpId op = stream.ops[stream.next];
    for (const OpId needed : program_.dependencies(op))
      if (timeline_.end[needed] < 0) return false;
    timeline_.start[op] = clock_;
    stream.busy = true;
    ++busy_;
    stream.left = seconds_[op];
    const bool before = std::exchange(stream.contends, program_.contends(op));
    set_rate(stream, now);
    if (!was_busy || before != stream.contends) adjust(stream.partner, now);
    return true;
  }

  void start_what_can(double now) {
    for (Stream& stream : streams_) try_start(stream, now);
  }

  void end_op(Stream& stream, double now) {
    clock_ = processors_.rates.empty() ? now : clock_ + (now - now_) / speed();
    now_ = now;
    timeline_.end[stream.ops[stream.next++]] = clock_;
    stream.busy = false;
    --busy_;
    stream.end = kNever;
    if (!try_start(stream, now, true)) adjust(stream.partner, now);
    start_what_can(now);
  }

  // The rate factor of all running ops under shared processors.
  [[nodiscard]] double speed() const {
    const size_t processors = processors_.rates.size(), workers = busy_ * processors_.per_op;
    if (workers <= processors) return processors_.rates[std::max<size_t>(workers, 1) - 1];
    return processors_.rates.back() * static_cast<double>(processors) / static_cast<double>(workers);
  }

  // The rate of a stream changes because its partner becomes busy or idle.
  void adjust(uint32_t index, double now) {
    if (index == kNone || !streams_[index].busy) return;
    Stream& stream = streams_[index];
    stream.left = std::max(0.0, stream.left - (now - stream.since) * stream.rate);
    set_rate(stream, now);
  }

  void set_rate(Stream& stream, double now) const {
    const bool contended = stream.partner != kNone && streams_[stream.partner].busy && stream.contends &&
                           streams_[stream.partner].contends;
    stream.since = now;
    stream.rate = contended ? stream.contended_rate : 1;
    stream.end = now + stream.left / stream.rate;
  }

  const Program& program_;
  std::span<const double> seconds_;
  const Processors& processors_;
  std::vector<Stream> streams_;
  Timeline timeline_;
  double now_ = 0, clock_ = 0;  // without and with shared processors
  size_t busy_ = 0;             // streams
};

// To the last bit: what happens at one time is in the same order.
TEST(Simulate, GivesEveryOpTheTimesOfASimulationFromEventToEvent) {
  std::mt19937 random(616);
  int delayed = 0;
  for (int draw = 0; draw < 1000; ++draw) {
    const Case c = random_case(random, draw % 8 == 0);
    const Processors shared{{1, 0.9, 0.7}, 1 + static_cast<int>(random() % 3)};
    const auto expect_same = [&](const Contention& contention, const Processors& processors) {
      const Timeline expected = Replay(c.program, c.seconds, contention, processors).run(),
                     timeline = simulate(c.program, c.seconds, contention, processors);
      EXPECT_EQ(timeline.start, expected.start);
      EXPECT_EQ(timeline.end, expected.end);
      EXPECT_EQ(timeline.step_s, expected.step_s);
      for (size_t rank = 0; rank < expected.ranks.size(); ++rank) {
        EXPECT_EQ(timeline.ranks[rank].compute_s, expected.ranks[rank].compute_s);
        EXPECT_EQ(timeline.ranks[rank].pp_bubble_s, expected.ranks[rank].pp_bubble_s);
        EXPECT_EQ(timeline.ranks[rank].tp_bubble_s, expected.ranks[rank].tp_bubble_s);
      }
      return timeline.step_s;
    };
    delayed += expect_same(c.contention, {}) > expect_same({}, {}) + 1e-9;
    if (draw % 4 == 0) expect_same(c.contention, shared);
    ASSERT_FALSE(HasFailure()) << "draw " << draw;
  }
  EXPECT_GT(delayed, 100);
}

TEST(SimulateRepeated, SplitsEachRanksStep) {
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

}  // namespace
}  // namespace stp
