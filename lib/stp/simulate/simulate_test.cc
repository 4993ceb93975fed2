// The engine against closed forms, hand-computed examples and laws that hold for every Program. (tests/oracle
// compares it with an independent implementation of all semantics but contention.)
#include "stp/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

#include "stp/program/lower.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"
#include "support/schedules.h"

namespace stp {

namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

// Not quite 1: selects the engine with contention, at rates that change nothing.
constexpr Contention kNearlyNone{1 - 1e-15, 1 - 1e-15};

// ---- Programs written by hand ----

struct Hand {
  explicit Hand(int ranks)
      : program{.schedule = {"by hand", Placement::loop(ranks, 1), 1, {}}, .depends_begin = {0}} {
    program.schedule.ranks.resize(ranks);
  }

  uint32_t stream(StreamKind kind, int rank, int peer = -1) {
    for (uint32_t i = 0; i < program.streams.size(); ++i) {
      const ProgramStream& s = program.streams[i];
      if (s.kind == kind && s.rank == rank && s.peer == peer) return i;
    }
    program.streams.push_back({kind, rank, peer});
    return static_cast<uint32_t>(program.streams.size() - 1);
  }
  OpId add(OpKind kind, uint32_t on, double cost, const std::vector<OpId>& depends) {
    program.ops.push_back({.kind = kind,
                           .unit = Unit::attn,
                           .unit_pass = UnitPass::F,
                           .pass = Pass::F,
                           .block = -1,
                           .stream = on});
    program.depends.insert(program.depends.end(), depends.begin(), depends.end());
    program.depends_begin.push_back(static_cast<uint32_t>(program.depends.size()));
    seconds.push_back(cost);
    return static_cast<OpId>(program.ops.size() - 1);
  }
  OpId compute(int rank, double cost, const std::vector<OpId>& depends = {}) {
    return add(OpKind::compute, stream(StreamKind::compute, rank), cost, depends);
  }
  OpId all_reduce(int rank, double cost, const std::vector<OpId>& depends = {}) {
    stream(StreamKind::compute, rank);
    return add(OpKind::all_reduce, stream(StreamKind::tp, rank), cost, depends);
  }
  OpId transfer(int rank, int peer, double cost, const std::vector<OpId>& depends = {}) {
    return add(OpKind::transfer, stream(StreamKind::p2p, rank, peer), cost, depends);
  }
  [[nodiscard]] Timeline run(const Contention& contention = {}, const Processors& processors = {}) const {
    return simulate(program, seconds, contention, processors);
  }

  Program program;
  std::vector<double> seconds;
};

// ---- Programs lowered from schedules ----

// Seconds by kind of op; the test's own table, since this module does not depend on costs.
struct Costs {
  double F = 0, I = 0, W_early = 0, W = 0, all_reduce = 0, p2p = 0, head_F = 0, head_I = 0, head_W = 0;

  [[nodiscard]] std::vector<double> of(const Program& program) const {
    std::vector<double> seconds;
    for (const Op& op : program.ops) {
      const bool head = op.unit == Unit::head;
      switch (op.kind) {
        case OpKind::compute:
          switch (op.unit_pass) {
            case UnitPass::F:
              seconds.push_back(head ? head_F : F);
              break;
            case UnitPass::I:
              seconds.push_back(head ? head_I : I);
              break;
            case UnitPass::W_early:
              seconds.push_back(W_early);
              break;
            case UnitPass::W_late:
              seconds.push_back(W);
              break;
          }
          break;
        case OpKind::weight_gradients:
          seconds.push_back(head ? head_W : W_early + W);
          break;
        case OpKind::all_reduce:
          seconds.push_back(all_reduce);
          break;
        case OpKind::reduce_scatter:
        case OpKind::all_gather:
          seconds.push_back(all_reduce / 2);
          break;
        case OpKind::transfer:
          seconds.push_back(op.tensors() * p2p);
          break;
        case OpKind::kv_exchange:
        case OpKind::kv_gradient_exchange:
        case OpKind::all_to_all:
        case OpKind::row_exchange:
        case OpKind::gradient_reduce:
        case OpKind::gradient_scatter:
        case OpKind::weight_gather:
        case OpKind::embedding_reduce:
        case OpKind::gradient_norm:
        case OpKind::norm_prefix:
        case OpKind::norm_total:
        case OpKind::optimizer:
        case OpKind::offload:
        case OpKind::reload:
          seconds.push_back(0);
          break;
      }
    }
    return seconds;
  }
};

Schedule plain_1f1b(int p, int m) {
  Schedule schedule{"1f1b", Placement::loop(p, 1), m, {}};
  for (int rank = 0; rank < p; ++rank) {
    auto& blocks = schedule.ranks.emplace_back();
    const int warm_up = std::min(p - 1 - rank, m);
    for (int i = 0; i < warm_up; ++i) blocks.emplace_back(Action{Pass::F, 0, i});
    for (int i = warm_up; i < m; ++i) {
      blocks.emplace_back(Action{Pass::F, 0, i});
      blocks.emplace_back(Action{Pass::B, 0, i - warm_up});
    }
    for (int i = m - warm_up; i < m; ++i) blocks.emplace_back(Action{Pass::B, 0, i});
  }
  return schedule;
}

struct Case {
  Program program;
  std::vector<double> seconds;
  Contention contention;
};

// A random order on a random placement, random layers, release and seconds; integers and eighths make ties.
Case random_case(std::mt19937& random) {
  const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
  const Placement placement =
      random() % 2 ? Placement::v(p) : Placement::loop(p, 1 + static_cast<int>(random() % 2));
  std::vector<int> layers(placement.stages());
  for (int& count : layers) count = static_cast<int>(random() % 3);
  constexpr Release releases[] = {Release::chain, Release::block, Release::released, Release::blocking};
  Lowering lowering{releases[random() % 4], random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                    random() % 2 == 0};
  lowering.strategy.cp = 1 + static_cast<int>(random() % 3);
  lowering.strategy.cp_method = static_cast<CpMethod>(random() % 2);
  lowering.strategy.sequence_parallel = random() % 2 == 0;
  if (lowering.strategy.sequence_parallel && random() % 2 == 0) {
    lowering.strategy.tp_overlap = TpOverlap::megatron;
    lowering.strategy.tp = 2 + static_cast<int>(random() % 3);
  }
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
    auto& stream = by_stream[program.ops[op].stream];
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
        if (program.ops[op].contends && program.ops[other].contends)
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

// ---- closed forms ----

TEST(Simulate, Gives1f1bItsClosedForm) {
  for (int p = 1; p <= 6; ++p) {
    for (const int m : {1, 2, p, p + 1, 3 * p, 20}) {
      for (const auto& [F, B] : {std::pair{1.0, 2.0}, {1.0, 1.0}, {3.0, 1.0}, {0.7, 1.9}}) {
        // Both units of the one layer share F and B. With the whole of B before the gradient leaves, or W
        // without cost.
        const Program atomic =
            lower(plain_1f1b(p, m), std::vector<int>(p, 1), {Release::block, BackwardOrder::suite, false});
        const Program early = lower(plain_1f1b(p, m), std::vector<int>(p, 1), {});
        const double expected = (m + p - 1) * (F + B);
        const Timeline whole = simulate(atomic, Costs{.F = F / 2, .I = B / 4, .W = B / 4}.of(atomic));
        EXPECT_NEAR(whole.step_s, expected, 1e-9) << p << " " << m;
        EXPECT_NEAR(simulate(early, Costs{.F = F / 2, .I = B / 2}.of(early)).step_s, expected, 1e-9)
            << p << " " << m;
        for (const RankTime& rank : whole.ranks) {
          EXPECT_NEAR(rank.compute_s, m * (F + B), 1e-9);
          EXPECT_NEAR(rank.pp_bubble_s, (p - 1) * (F + B), 1e-9);
          EXPECT_EQ(rank.tp_bubble_s, 0);
        }
      }
    }
  }
}

// F and I of a layer alone, with Megatron-LM's overlap on t ranks. A ring: step k waits for k exchanges; a
// pipeline: each piece is summed behind its step.
TEST(Simulate, GivesAnOverlappedLayerItsClosedForm) {
  Schedule schedule{"by hand", Placement::loop(1, 2), 1, {{}}};
  for (const Action& action :
       {Action{Pass::F, 0, 0}, {Pass::F, 1, 0}, {Pass::B, 1, 0}, {Pass::I, 0, 0}, {Pass::W, 0, 0}})
    schedule.ranks[0].emplace_back(action);
  for (const int t : {2, 3, 8}) {
    Lowering lowering{.backward = BackwardOrder::megatron, .strategy = {.sequence_parallel = true}};
    lowering.strategy.tp_overlap = TpOverlap::megatron;
    lowering.strategy.tp = t;
    const Program program = lower(schedule, {1, 0}, lowering);
    for (const auto& [norm, step, exchange, core, split, sum] : {std::array{1.0, 2.0, 1.0, 3.0, 2.0, 1.0},
                                                                 {1.0, 1.0, 2.0, 3.0, 1.0, 2.0},
                                                                 {0.5, 3.0, 0.0, 0.0, 1.0, 1.0},
                                                                 {2.0, 0.0, 3.0, 1.0, 0.0, 3.0}}) {
      std::vector<double> seconds;
      for (const Op& op : program.ops) {
        const bool in_layer = op.unit == Unit::attn || op.unit == Unit::mlp;
        double cost = 0;
        if (op.kind == OpKind::row_exchange) cost = exchange;
        if (op.kind == OpKind::reduce_scatter) cost = sum;
        if (op.kind == OpKind::compute && in_layer)
          cost = op.part == UnitPart::norm     ? norm
                 : op.part == UnitPart::before ? step
                 : op.part == UnitPart::core   ? core
                                               : split;
        seconds.push_back(cost);
      }
      const double ring = step + (t - 1) * std::max(step, exchange);
      const double forward = 2 * (norm + ring + core + split + 3 * std::max(split, sum) + sum);
      const double backward = 2 * (ring + core + split + sum);  // I alone: its sum is exposed
      const Timeline timeline = simulate(program, seconds, {});
      EXPECT_DOUBLE_EQ(timeline.step_s, forward + backward);
      const double busy = 2 * (norm + t * step + core + 4 * split) + 2 * (t * step + core + split);
      EXPECT_DOUBLE_EQ(timeline.ranks[0].compute_s, busy);
      EXPECT_DOUBLE_EQ(timeline.ranks[0].pp_bubble_s, sum);  // behind the last compute op
    }
  }
}

TEST(Simulate, GivesOneMicrobatchItsCriticalPath) {
  std::mt19937 random(601);
  for (int draw = 0; draw < 40; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    int layers = 0, hops = 0;
    std::vector<int> chunks;
    for (int stage = 0; stage < 2 * p; ++stage) {
      chunks.push_back(static_cast<int>(random() % 3));
      layers += chunks.back();
      if (stage > 0) hops += placement.rank_of(stage) != placement.rank_of(stage - 1);
    }
    const Program program = lower(random_schedule(random, placement, 1), chunks, {});
    const Costs costs{.F = 1.5, .I = 2.25, .all_reduce = 0.3, .p2p = 0.7, .head_F = 4, .head_I = 5};
    const double path = 2 * layers * (1.5 + 2.25 + 2 * 0.3) + 2 * hops * 0.7 + 4 + 5;
    EXPECT_NEAR(simulate(program, costs.of(program)).step_s, path, 1e-9);
    // More microbatches, and weight gradients, only add to it.
    const Program more = lower(random_schedule(random, placement, 3), chunks, {});
    EXPECT_GE(simulate(more, Costs{1.5, 2.25, 0, 1, 0.3, 0.7, 4, 5, 1}.of(more)).step_s, path - 1e-9);
  }
}

TEST(Simulate, ExposesOnOneRankEveryForwardAllReduceAndWhatWeightGradientsDoNotCover) {
  constexpr double F = 1, I = 1.2, W = 0.7;
  for (const int m : {1, 3}) {
    const Program program = lower(plain_1f1b(1, m), {1}, {});
    for (const double all_reduce : {0.0, 0.3, 0.7, 0.9}) {
      const Timeline timeline = simulate(
          program,
          Costs{.F = F, .I = I, .W = W, .all_reduce = all_reduce, .head_F = 0.5, .head_I = 0.5, .head_W = 0.5}
              .of(program));
      const double uncovered = std::max(0.0, all_reduce - W);
      const RankTime& rank = timeline.ranks[0];
      EXPECT_NEAR(rank.compute_s, m * (2 * (F + I + W) + 1.5), 1e-9);
      EXPECT_NEAR(rank.tp_bubble_s, m * (2 * all_reduce + uncovered), 1e-9);
      EXPECT_NEAR(rank.pp_bubble_s, uncovered, 1e-9);  // behind the last op
    }
  }
}

// Each half's all-reduces run beside the other half's segments. What remains is the last of a forward, for
// which only the head of the other half is left, and what all-reduces take beyond a segment.
TEST(Simulate, ExposesOfHalvesOfAMicrobatchTheLastAllReduceOfAForward) {
  constexpr double F = 0.5, I = 0.6, W = 0.35, head = 0.25;
  for (const int m : {1, 3}) {
    Lowering lowering;
    lowering.strategy.tp_overlap = TpOverlap::domino;
    const Program program = lower(plain_1f1b(1, m), {1}, lowering);
    for (const double all_reduce : {0.0, 0.2, 0.3, 0.5, 0.8}) {
      const Timeline timeline = simulate(program, Costs{.F = F,
                                                        .I = I,
                                                        .W = W,
                                                        .all_reduce = all_reduce,
                                                        .head_F = head,
                                                        .head_I = head,
                                                        .head_W = head}
                                                      .of(program));
      const double exposed =
          all_reduce > F ? 4 * all_reduce - 3 * F - head : std::max(0.0, all_reduce - head);
      const RankTime& rank = timeline.ranks[0];
      EXPECT_NEAR(rank.compute_s, 2 * m * (2 * (F + I + W) + 3 * head), 1e-9);
      EXPECT_NEAR(rank.tp_bubble_s, m * exposed, 1e-9) << all_reduce;
      EXPECT_NEAR(rank.pp_bubble_s, std::max(0.0, all_reduce - W), 1e-9);  // behind the last op
    }
  }
}

TEST(Simulate, CallsAWaitThatEndsWithTheOwnAllReduceTpBubbleAndEveryOtherPpBubble) {
  Hand hand(2);
  const OpId first = hand.compute(0, 1);
  const OpId own = hand.all_reduce(0, 2, {first});     // ends at 3
  const OpId far = hand.compute(1, 4);                 // ends at 4
  const OpId sent = hand.transfer(1, 0, 1, {far});     // ends at 5
  const OpId theirs = hand.all_reduce(1, 6, {far});    // ends at 10
  hand.compute(0, 1, {own});                           // 3 to 4: two seconds of TP bubble
  hand.compute(0, 1, {own, sent});                     // 5 to 6: one second of PP bubble
  hand.compute(0, 1, {theirs});                        // 10 to 11: another rank's all-reduce, PP bubble
  const OpId tie = hand.all_reduce(0, 2, {theirs});    // 10 to 12
  const OpId tied = hand.transfer(1, 0, 2, {theirs});  // 10 to 12
  hand.compute(0, 0.5, {tie, tied});                   // 12: both; one second of TP bubble
  const OpId again = hand.all_reduce(0, 2, {theirs});  // 12 to 14
  const OpId also = hand.transfer(1, 0, 2, {theirs});  // 12 to 14
  hand.compute(0, 0.5, {also, again});                 // 14: in the other order; 1.5 more
  for (const Contention& contention : {Contention{}, kNearlyNone}) {
    const Timeline timeline = hand.run(contention);
    EXPECT_NEAR(timeline.step_s, 14.5, 1e-12);
    EXPECT_NEAR(timeline.ranks[0].compute_s, 5, 1e-12);
    EXPECT_NEAR(timeline.ranks[0].tp_bubble_s + timeline.ranks[0].pp_bubble_s, 9.5, 1e-12);
    if (contention.compute == 1) {  // a tie that rounding does not break
      EXPECT_DOUBLE_EQ(timeline.ranks[0].tp_bubble_s, 4.5);
      EXPECT_DOUBLE_EQ(timeline.ranks[0].pp_bubble_s, 5);
    }
    EXPECT_NEAR(timeline.ranks[1].pp_bubble_s, 10.5, 1e-12);
  }
}

TEST(Simulate, RunsTheTransfersOfALinkOneAfterTheOtherAndBothDirectionsAtOnce) {
  Hand hand(2);
  const OpId first = hand.transfer(0, 1, 2), second = hand.transfer(0, 1, 2), back = hand.transfer(1, 0, 3);
  const Timeline timeline = hand.run();
  EXPECT_EQ(timeline.end[first], 2);
  EXPECT_EQ(timeline.start[second], 2);
  EXPECT_EQ(timeline.start[back], 0);
  EXPECT_EQ(timeline.step_s, 4);
}

// ---- contention, by hand ----

constexpr Contention kPaper{0.83, 0.9};

TEST(Contention, LeavesWhatRunsAloneAlone) {
  Hand hand(1);
  const OpId gemm = hand.compute(0, 2);
  const OpId reduce = hand.all_reduce(0, 3, {gemm});
  const OpId after = hand.compute(0, 1, {reduce});
  const Timeline timeline = hand.run({0.5, 0.25});
  EXPECT_DOUBLE_EQ(timeline.end[gemm], 2);
  EXPECT_DOUBLE_EQ(timeline.end[reduce], 5);
  EXPECT_DOUBLE_EQ(timeline.end[after], 6);
}

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

TEST(Contention, CountsOnlyTheTimeOfTheOverlap) {
  Hand hand(2);
  const OpId gemm = hand.compute(0, 2);
  const OpId other = hand.compute(1, 1);  // keeps the all-reduce from starting before 1
  const OpId reduce = hand.all_reduce(0, 0.45, {other});
  const Timeline timeline = hand.run(kPaper);
  EXPECT_DOUBLE_EQ(timeline.end[other], 1);
  EXPECT_DOUBLE_EQ(timeline.end[reduce], 1.5);  // 0.45 / 0.9
  EXPECT_DOUBLE_EQ(timeline.end[gemm],
                   1.5 + (2 - 1 - 0.5 * 0.83));  // 1 alone, 0.415 beside it, the rest alone
}

TEST(Contention, FollowsAnAllReduceThroughComputeAndGaps) {
  Hand hand(2);
  const OpId first = hand.compute(0, 0.83);                            // 0 to 1 at 0.83
  const OpId far = hand.compute(1, 2);                                 // 0 to 2
  const OpId second = hand.compute(0, 0.415, {far});                   // gap from 1 to 2; then 2 to 2.5
  const OpId third = hand.compute(0, 0.83);                            // 2.5 to 3.5, if the all-reduce lasts
  const OpId reduce = hand.all_reduce(0, 0.9 + 1 + 0.45 + 0.9 + 0.1);  // and ends 0.1 later
  const Timeline timeline = hand.run(kPaper);
  EXPECT_DOUBLE_EQ(timeline.end[first], 1);
  EXPECT_DOUBLE_EQ(timeline.end[second], 2.5);
  EXPECT_DOUBLE_EQ(timeline.end[third], 3.5);
  EXPECT_DOUBLE_EQ(timeline.end[reduce], 3.6);
  EXPECT_NEAR(timeline.ranks[0].pp_bubble_s, 1 + 0.1, 1e-12);
}

TEST(Contention, FollowsAComputeThroughTwoAllReduces) {
  Hand hand(1);
  const OpId first = hand.all_reduce(0, 0.9), second = hand.all_reduce(0, 0.45);  // 0 to 1, 1 to 1.5
  const OpId gemm = hand.compute(0, 1.5 * 0.83 + 2);
  const Timeline timeline = hand.run(kPaper);
  EXPECT_DOUBLE_EQ(timeline.end[first], 1);
  EXPECT_DOUBLE_EQ(timeline.end[second], 1.5);
  EXPECT_DOUBLE_EQ(timeline.end[gemm], 3.5);
}

TEST(Contention, LeavesTransfersAndOtherRanksAlone) {
  Hand hand(2);
  const OpId gemm = hand.compute(0, 1), reduce = hand.all_reduce(1, 1), send = hand.transfer(0, 1, 1);
  const Timeline timeline = hand.run({0.1, 0.1});
  for (const OpId op : {gemm, reduce, send}) EXPECT_DOUBLE_EQ(timeline.end[op], 1);
}

// The engine knows nothing else of what an op is.
TEST(Contention, LeavesOpsAloneThatDoNotContendAndThoseBesideThem) {
  for (const bool compute : {false, true}) {
    Hand hand(1);
    const OpId gemm = hand.compute(0, 2), reduce = hand.all_reduce(0, 1), second = hand.all_reduce(0, 0.25);
    hand.program.ops[compute ? gemm : reduce].contends = false;
    const Timeline timeline = hand.run({0.5, 0.5});
    EXPECT_DOUBLE_EQ(timeline.end[reduce], 1);
    EXPECT_DOUBLE_EQ(timeline.end[second], compute ? 1.25 : 1.5);
    EXPECT_DOUBLE_EQ(timeline.end[gemm], compute ? 2 : 2.25);
  }
}

TEST(Contention, OfOneKindAloneSlowsThatKindAlone) {
  Hand hand(1);
  const OpId gemm = hand.compute(0, 1), reduce = hand.all_reduce(0, 1);
  EXPECT_DOUBLE_EQ(hand.run({1, 0.5}).end[gemm], 1);
  EXPECT_DOUBLE_EQ(hand.run({1, 0.5}).end[reduce], 1.5);
  EXPECT_DOUBLE_EQ(hand.run({0.5, 1}).end[gemm], 1.5);
  EXPECT_DOUBLE_EQ(hand.run({0.5, 1}).end[reduce], 1);
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

// ---- laws ----

TEST(SimulateLaws, HoldForRandomProgramsWithoutContention) {
  std::mt19937 random(602);
  for (int draw = 0; draw < 300; ++draw) {
    const Case c = random_case(random);
    expect_lawful(c, simulate(c.program, c.seconds), {});
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw;
  }
}

TEST(SimulateLaws, HoldForRandomProgramsWithContention) {
  std::mt19937 random(603);
  for (int draw = 0; draw < 300; ++draw) {
    const Case c = random_case(random);
    expect_lawful(c, simulate(c.program, c.seconds, c.contention), c.contention);
    ASSERT_FALSE(testing::Test::HasFailure()) << "draw " << draw;
  }
}

TEST(SimulateLaws, HoldForStpOrders) {
  std::mt19937 random(604);
  std::uniform_real_distribution<double> real(0, 2);
  for (const auto& [p, m] : {std::pair{1, 4}, {2, 9}, {4, 16}, {6, 20}}) {
    Case c{lower(stp_schedule(p, m), std::vector<int>(2 * p, 2), {}), {}, kPaper};
    for (size_t op = 0; op < c.program.ops.size(); ++op) c.seconds.push_back(real(random));
    expect_lawful(c, simulate(c.program, c.seconds), {});
    expect_lawful(c, simulate(c.program, c.seconds, kPaper), kPaper);
  }
}

TEST(SimulateLaws, BothEnginesAgreeWhereRatesAreOne) {
  std::mt19937 random(605);
  for (int draw = 0; draw < 300; ++draw) {
    const Case c = random_case(random);
    const Timeline plain = simulate(c.program, c.seconds),
                   contended = simulate(c.program, c.seconds, kNearlyNone);
    for (OpId op = 0; op < c.program.ops.size(); ++op) {
      ASSERT_NEAR(plain.start[op], contended.start[op], 1e-12 * (1 + plain.step_s))
          << describe(c.program, op);
      ASSERT_NEAR(plain.end[op], contended.end[op], 1e-12 * (1 + plain.step_s)) << describe(c.program, op);
    }
    for (size_t rank = 0; rank < plain.ranks.size(); ++rank)
      EXPECT_NEAR(plain.ranks[rank].compute_s, contended.ranks[rank].compute_s, 1e-12 * (1 + plain.step_s));
  }
}

TEST(SimulateLaws, NoOpEndsEarlierWhereAnyCostGrows) {
  std::mt19937 random(606);
  for (int draw = 0; draw < 200; ++draw) {
    Case c = random_case(random);
    const Timeline before = simulate(c.program, c.seconds);
    for (double& cost : c.seconds)
      if (random() % 4 == 0) cost += static_cast<double>(random() % 8) / 4;
    const Timeline after = simulate(c.program, c.seconds);
    for (OpId op = 0; op < c.program.ops.size(); ++op) ASSERT_GE(after.end[op], before.end[op] - 1e-9);
  }
}

TEST(SimulateLaws, ContentionOnlyDelaysAndNeverMoreThanItsRatesAllow) {
  std::mt19937 random(607);
  int delayed = 0;
  for (int draw = 0; draw < 200; ++draw) {
    const Case c = random_case(random);
    std::vector<double> slowest = c.seconds;  // as if everything overlapped all the time
    for (OpId op = 0; op < c.program.ops.size(); ++op) {
      const StreamKind kind = c.program.stream_of(op).kind;
      if (kind == StreamKind::compute) slowest[op] /= c.contention.compute;
      if (kind == StreamKind::tp) slowest[op] /= c.contention.all_reduce;
    }
    const Timeline low = simulate(c.program, c.seconds), high = simulate(c.program, slowest);
    const Timeline contended = simulate(c.program, c.seconds, c.contention);
    for (OpId op = 0; op < c.program.ops.size(); ++op) {
      ASSERT_GE(contended.end[op], low.end[op] - 1e-9) << describe(c.program, op);
      ASSERT_LE(contended.end[op], high.end[op] + 1e-9) << describe(c.program, op);
    }
    delayed += contended.step_s > low.step_s + 1e-9;
  }
  EXPECT_GT(delayed, 50);
}

TEST(SimulateLaws, AStepGetsSlowerAsEitherRateFalls) {
  const Program program = lower(stp_schedule(4, 16), std::vector<int>(8, 1), {});
  const std::vector<double> seconds = Costs{1, 1, 0.3, 0.4, 0.5, 0.1, 1, 1, 1}.of(program);
  double compute_before = simulate(program, seconds).step_s, reduce_before = compute_before;
  for (const double rate : {0.95, 0.9, 0.8, 0.6, 0.4}) {
    const double compute = simulate(program, seconds, {rate, 1}).step_s,
                 reduce = simulate(program, seconds, {1, rate}).step_s;
    EXPECT_GT(compute, compute_before) << rate;
    EXPECT_GT(reduce, reduce_before) << rate;
    compute_before = compute;
    reduce_before = reduce;
  }
}

TEST(SimulateLaws, ScaleWithTheUnitOfTime) {
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

// ---- edges ----

TEST(Simulate, TakesNoTimeForOpsThatCostNothing) {
  const Program program =
      lower(stp_schedule(3, 8), std::vector<int>(6, 2), {Release::block, BackwardOrder::megatron, true});
  const std::vector<double> nothing(program.ops.size(), 0);
  for (const Contention& contention : {Contention{}, kPaper}) {
    const Timeline timeline = simulate(program, nothing, contention);
    EXPECT_EQ(timeline.step_s, 0);
    EXPECT_THAT(timeline.end, Each(0));
    for (const RankTime& rank : timeline.ranks)
      EXPECT_EQ(rank.compute_s + rank.pp_bubble_s + rank.tp_bubble_s, 0);
  }
}

TEST(Simulate, KeepsTheOrderOfOpsThatCostNothing) {
  Hand hand(2);
  const OpId late = hand.compute(1, 5);
  const OpId empty = hand.compute(0, 0, {late});  // keeps its place on the stream
  const OpId behind = hand.compute(0, 1);
  for (const Contention& contention : {Contention{}, kPaper}) {
    const Timeline timeline = hand.run(contention);
    EXPECT_DOUBLE_EQ(timeline.start[empty], 5);
    EXPECT_DOUBLE_EQ(timeline.start[behind], 5);
  }
}

TEST(Simulate, OfNoOpsTakesNoTime) {
  Hand hand(3);
  hand.stream(StreamKind::compute, 0);
  for (const Contention& contention : {Contention{}, Contention{1, 0.5}}) {
    if (contention.all_reduce < 1) hand.stream(StreamKind::tp, 0);
    EXPECT_EQ(hand.run(contention).step_s, 0);
    EXPECT_EQ(hand.run(contention).ranks.size(), 3U);
  }
}

TEST(Simulate, CountsAnAllReduceOrTransferBehindTheLastComputeIntoTheStep) {
  Hand hand(2);
  const OpId gemm = hand.compute(0, 1);
  hand.all_reduce(0, 2, {gemm});
  EXPECT_EQ(hand.run().step_s, 3);
  hand.transfer(0, 1, 4, {gemm});
  EXPECT_EQ(hand.run().step_s, 5);
  EXPECT_EQ(hand.run().ranks[0].pp_bubble_s, 4);
}

std::string deadlock(const Hand& hand, const Contention& contention) {
  try {
    static_cast<void>(hand.run(contention));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Simulate, NamesAnOpThatNeverStartsWhereDependenciesFormACycle) {
  Hand hand(2);
  hand.compute(0, 1);
  hand.compute(1, 1, {2});     // op 1 waits for op 2,
  hand.all_reduce(1, 1, {1});  // and op 2 for op 1
  for (const Contention& contention : {Contention{}, kPaper})
    EXPECT_THAT(deadlock(hand, contention), AllOf(HasSubstr("deadlock"), HasSubstr("never starts"),
                                                  AnyOf(HasSubstr("rank 1, compute, attn.F of F0.0"),
                                                        HasSubstr("rank 1, tp, all-reduce of attn.F"))));
}

TEST(Simulate, NamesAnOpWhereTheOrderOfAStreamClosesTheCycle) {
  Hand hand(2);
  hand.compute(0, 1, {1});  // waits for rank 1,
  hand.compute(1, 1, {2});  // which waits for the op after the first on its stream
  hand.compute(0, 1);
  for (const Contention& contention : {Contention{}, kPaper})
    EXPECT_THAT(deadlock(hand, contention), AllOf(HasSubstr("deadlock: rank "), HasSubstr("compute")));
}

TEST(Simulate, NeverStopsInOrdersThatValidateAccepts) {
  std::mt19937 random(609);
  for (int draw = 0; draw < 200; ++draw) {
    const Case c = random_case(random);
    ASSERT_NO_THROW(validate(c.program.schedule));
    EXPECT_NO_THROW(simulate(c.program, c.seconds));
    EXPECT_NO_THROW(simulate(c.program, c.seconds, c.contention));
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

}  // namespace
}  // namespace stp
