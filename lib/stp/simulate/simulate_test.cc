// The engine against closed forms and examples by hand. (tests/oracle compares it with an independent
// implementation of all semantics but contention; contention_test.cc with a plain one of that, too.)
#include "stp/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stp/program/lower.h"
#include "support/hand.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Not quite 1: selects the engine with contention, at rates that change nothing.
constexpr Contention kNearlyNone{1 - 1e-15, 1 - 1e-15};

// Seconds by kind of op; the test's own table, since this module does not depend on costs.
struct Costs {
  double F = 0, I = 0, W = 0, all_reduce = 0, p2p = 0, head_F = 0, head_I = 0, head_W = 0;

  [[nodiscard]] double of(const Op& op) const {
    const bool head = op.unit == Unit::head;
    if (op.kind == OpKind::weight_gradients) return head ? head_W : W;
    if (op.kind == OpKind::all_reduce) return all_reduce;
    if (op.kind == OpKind::transfer) return op.tensors() * p2p;
    EXPECT_EQ(op.kind, OpKind::compute);
    if (op.unit_pass == UnitPass::F) return head ? head_F : F;
    return head ? head_I : I;
  }
  [[nodiscard]] Timeline simulate(const Program& program) const {
    std::vector<double> seconds;
    for (const Op& op : program.ops) seconds.push_back(of(op));
    return stp::simulate(program, seconds);
  }
};

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
        const Timeline whole = Costs{.F = F / 2, .I = B / 4, .W = B / 4}.simulate(atomic);
        EXPECT_NEAR(whole.step_s, expected, 1e-9) << p << " " << m;
        const Costs no_weights{.F = F / 2, .I = B / 2};
        EXPECT_NEAR(no_weights.simulate(early).step_s, expected, 1e-9) << p << " " << m;
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
    const Program program =
        lower(schedule, {1, 0},
              {.backward = BackwardOrder::megatron,
               .strategy = {.tp = t, .sequence_parallel = true, .tp_overlap = TpOverlap::megatron}});
    for (const auto& [norm, step, exchange, core, split, sum] : {std::array{1.0, 2.0, 1.0, 3.0, 2.0, 1.0},
                                                                 {1.0, 1.0, 2.0, 3.0, 1.0, 2.0},
                                                                 {0.5, 3.0, 0.0, 0.0, 1.0, 1.0},
                                                                 {2.0, 0.0, 3.0, 1.0, 0.0, 3.0}}) {
      std::vector<double> seconds;
      for (const Op& op : program.ops) {
        const bool in_layer = op.unit == Unit::attn || op.unit == Unit::mlp;
        double cost = 0;
        if (op.kind == OpKind::exchange) cost = exchange;
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

// Each half's all-reduces run beside the other half's segments. What remains is the last of a forward, for
// which only the head of the other half is left, and what all-reduces take beyond a segment.
TEST(Simulate, ExposesOfHalvesOfAMicrobatchTheLastAllReduceOfAForward) {
  constexpr double F = 0.5, I = 0.6, W = 0.35, head = 0.25;
  for (const int m : {1, 3}) {
    const Program program = lower(plain_1f1b(1, m), {1}, {.strategy = {.tp_overlap = TpOverlap::domino}});
    for (const double all_reduce : {0.0, 0.2, 0.3, 0.5, 0.8}) {
      const Timeline timeline = Costs{.F = F,
                                      .I = I,
                                      .W = W,
                                      .all_reduce = all_reduce,
                                      .head_F = head,
                                      .head_I = head,
                                      .head_W = head}
                                    .simulate(program);
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

TEST(Simulate, DividesAWaitByWhatTheOwnAllReducesWaitedFor) {
  Hand hand(2);
  const OpId far = hand.compute(1, 4);
  const OpId received = hand.transfer(1, 0, 1, {far});    // 4 to 5
  const OpId own = hand.all_reduce(0, 2, {received});     // 5 to 7
  const OpId then = hand.all_reduce(0, 1, {own});         // 7 to 8
  hand.compute(0, 1, {then});                             // 8 to 9: 5 s of PP bubble, 3 of TP bubble
  const OpId queued = hand.all_reduce(0, 3, {received});  // 8 to 11: its stream was busy
  hand.compute(0, 1, {queued});                           // 11 to 12: 2 s of TP bubble
  for (const Contention& contention : {Contention{}, kNearlyNone}) {
    const Timeline timeline = hand.run(contention);
    EXPECT_NEAR(timeline.ranks[0].pp_bubble_s, 5, 1e-12);
    EXPECT_NEAR(timeline.ranks[0].tp_bubble_s, 5, 1e-12);
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
    EXPECT_THAT(timeline.end, testing::Each(0));
    for (const RankTime& rank : timeline.ranks)
      EXPECT_EQ(rank.compute_s + rank.pp_bubble_s + rank.tp_bubble_s, 0);
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

TEST(Simulate, NamesAnOpThatNeverStartsWhereDependenciesFormACycle) {
  Hand hand(2);
  hand.compute(0, 1);
  hand.compute(1, 1, {2});     // op 1 waits for op 2,
  hand.all_reduce(1, 1, {1});  // and op 2 for op 1
  for (const Contention& contention : {Contention{}, kPaper})
    EXPECT_THAT(error_of<std::runtime_error>([&] { static_cast<void>(hand.run(contention)); }),
                AllOf(HasSubstr("deadlock"), HasSubstr("never starts"),
                      testing::AnyOf(HasSubstr("rank 1, compute, attn.F of F0.0"),
                                     HasSubstr("rank 1, tp, all-reduce of attn.F"))));
}

TEST(Simulate, NamesAnOpWhereTheOrderOfAStreamClosesTheCycle) {
  Hand hand(2);
  hand.compute(0, 1, {1});  // waits for rank 1,
  hand.compute(1, 1, {2});  // which waits for the op after the first on its stream
  hand.compute(0, 1);
  for (const Contention& contention : {Contention{}, kPaper})
    EXPECT_THAT(error_of<std::runtime_error>([&] { static_cast<void>(hand.run(contention)); }),
                AllOf(HasSubstr("deadlock: rank "), HasSubstr("compute")));
}

}  // namespace
}  // namespace stp
