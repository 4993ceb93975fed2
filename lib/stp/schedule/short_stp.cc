// With few microbatches there is no steady state: the first backwards begin while the last forwards still go
// down the ranks, and the best order depends on p and m. List scheduling finds it: every rank takes the best
// block that it can run at once, by fixed rules, and a search chooses a few parameters of these rules. The
// rules are the method's. A chunk's forward is braided with its backward. W is split off only if another rank
// waits for I. A pass without such a partner is braided with another pass if possible, to overlap its
// all-reduce.
#include "stp/schedule/short_stp.h"

#include <algorithm>
#include <array>
#include <compare>
#include <initializer_list>
#include <map>
#include <type_traits>
#include <utility>

#include "stp/schedule/list_scheduler.h"
#include "stp/schedule/rank_writer.h"

namespace stp {
namespace {

constexpr double kEpsilon = 1e-9;
// The times of the list schedule: F, I and W take 1 each; a forward or I without a partner also takes its
// all-reduce. Blocks are atomic, so the order does not depend on outputs that leave their block early.
constexpr double kAllReduce = 0.25;
// Orders are compared by their time with one layer per chunk: two units per pass, each with its all-reduce,
// and outputs that leave as soon as they are ready. Two lengths of all-reduces, because hardware differs.
constexpr std::array<double, 2> kUnitAllReduces{0.125, 0.25};

constexpr Step forward_of(int chunk) { return chunk == 0 ? kF0 : kF1; }
// A full backward has the hop of its I, too.
constexpr Step backward_of(int chunk) { return chunk == 0 ? kI0 : kI1; }
// For all actions except W.
constexpr Step step_of(const Action& action) {
  return action.pass == Pass::F ? forward_of(action.chunk) : backward_of(action.chunk);
}

// The parameters that the search chooses.
struct Policy {
  // Rank r keeps reserve + slope · r deferred W; while there are fewer, backwards of the chunk are split.
  double reserve_0 = 0, slope_0 = 0, reserve_1 = 1, slope_1 = 1;
  double last_split = 0;        // this many of a rank's last backwards, times r, are split in any case
  double patience = 0;          // longest time that a forward waits for a backward
  int pair_0 = -1, pair_1 = 2;  // first microbatch with a braided F0&F0, F1&F0; -1: never

  auto operator<=>(const Policy&) const = default;  // NOLINT(modernize-use-nullptr): of clang-tidy 14
};

// The score that orders are compared by. A schedule's searches share the scores of the policies tried.
struct Score {
  double time, price;
};
using KnownScores = std::map<Policy, Score>;

// Computes the time of an order with units and all-reduces. Blocks run after the blocks that they wait for.
class UnitTimer {
 public:
  UnitTimer(int p, int m, double all_reduce)
      : p_(p),
        m_(m),
        all_reduce_(all_reduce),
        compute_(p),
        tp_(p),
        arrivals_((4 * static_cast<size_t>(p) + 1) * m) {}

  void run(int r, const Block& block) {
    const auto actions = block.actions();
    std::array<double, 2> chains{};  // when each action's chain is ready
    for (size_t i = 0; i < actions.size(); ++i)
      if (actions[i].pass != Pass::W) chains[i] = arrivals_[input(r, actions[i])];
    double &compute = compute_[r], &tp = tp_[r];
    for (int unit = 0; unit < 2; ++unit) {
      for (size_t i = 0; i < actions.size(); ++i) {
        compute = std::max(compute, chains[i]) + 0.5;
        if (actions[i].pass == Pass::W) continue;
        chains[i] = tp = std::max(tp, compute) + all_reduce_;
        if (actions[i].pass == Pass::B) compute += 0.5;
      }
    }
    for (size_t i = 0; i < actions.size(); ++i)
      if (actions[i].pass != Pass::W) arrivals_[input(r, actions[i]) + m_] = chains[i];
  }
  [[nodiscard]] double end() const { return std::max(std::ranges::max(compute_), std::ranges::max(tp_)); }

 private:
  // The next hop's entry is m further on.
  [[nodiscard]] size_t input(int r, const Action& action) const {
    return static_cast<size_t>(v_hop(p_, r, step_of(action))) * m_ + action.microbatch;
  }

  int p_, m_;
  double all_reduce_;
  std::vector<double> compute_, tp_;  // by rank: the time when the stream is free
  std::vector<double> arrivals_;      // by hop and microbatch: arrival of its input
};

// The list schedule.
class ShortSchedule {
 public:
  ShortSchedule(int p, int m, int capacity, const Policy& policy)
      : p_(p), m_(m), capacity_(capacity), policy_(policy), state_(p, m), writers_(p) {
    for (const double all_reduce : kUnitAllReduces) timers_.emplace_back(p, m, all_reduce);
    state_.run_by_time([this](int r, double now) { return choose(r, now); });
  }

  [[nodiscard]] double time() const { return (timers_[0].end() + timers_[1].end()) / 2; }
  // A penalty on exposed all-reduces, if there are at least as many as in 1F1B-I, 2m on each rank. It is high
  // for single passes, and low for two forwards or two I in a block, which hide each other's.
  [[nodiscard]] double price() const {
    const auto too_many = [&](int count) { return std::max(0, count - 2 * m_ * p_ + 1); };
    return (too_many(alone_) > 0 ? 1 : 0) + 0.5 * too_many(alone_) + 0.05 * too_many(alone_ + paired_);
  }
  [[nodiscard]] std::vector<std::vector<Block>> take() {
    std::vector<std::vector<Block>> blocks;
    for (RankWriter& writer : writers_) blocks.push_back(writer.take());
    return blocks;
  }

 private:
  // Runs a block of rank r at `now`; returns when the rank chooses next.
  double choose(int r, double now) {
    const auto ready = [&](Step step) { return state_.arrival(r, step) <= now + kEpsilon; };
    const bool has_room = state_.alive(r) < capacity_;
    const std::array<bool, 2> forwards{has_room && ready(kF0), has_room && ready(kF1)};
    const std::array<bool, 2> backwards{ready(kI0), ready(kI1)};

    // 1. The method's braid.
    for (const int chunk : {1, 0})
      if (forwards[chunk] && backwards[chunk])
        return run(r, now, {forward(r, chunk), backward(r, chunk, splits(r, chunk))});

    // 2. A backward, because other ranks wait for it; or two I, of which each hides the other's all-reduce.
    if (backwards[0] && backwards[1] && splits(r, 0, 2) && splits(r, 1, 2))
      return run(r, now, {backward(r, 1, true), backward(r, 0, true)});
    for (const int chunk : {1, 0})
      if (backwards[chunk]) return run(r, now, backward(r, chunk, splits(r, chunk)));

    // 3. A forward: best in a braid a little later, else with a W, then another forward, then alone.
    if (forwards[0] || forwards[1]) {
      double wait = kNever;
      for (const int chunk : {0, 1})
        if (forwards[chunk]) wait = std::min(wait, state_.arrival(r, backward_of(chunk)) - now);
      if (wait <= policy_.patience + kEpsilon) {
        const bool fits = state_.deferred(r) > 0 && wait >= 1 - kEpsilon;
        return fits ? run(r, now, weight_gradient(r)) : now + wait;
      }
      const Action first = forward(r, forwards[1] ? 1 : 0);
      if (state_.deferred(r) > 0) return run(r, now, {first, weight_gradient(r)});
      if (pairs(r, first, now)) return run(r, now, {first, forward(r, 0)});
      return run(r, now, first);
    }

    // 4. W, if it fits or its memory is needed.
    const double next = state_.next_arrival(r, now + kEpsilon);
    if (state_.deferred(r) > 0 && (next >= now + 1 - kEpsilon || !has_room))
      return run(r, now, weight_gradient(r));
    return next;
  }

  // Whether the next backward of `chunk` is split, as the `nth` one to be split now. No rank waits for rank
  // 0's I0.
  [[nodiscard]] bool splits(int r, int chunk, int nth = 1) const {
    if (r == 0 && chunk == 0) return false;
    const int left = 2 * m_ - state_.done(r)[kI0] - state_.done(r)[kI1];
    const double reserve =
        chunk == 0 ? policy_.reserve_0 + policy_.slope_0 * r : policy_.reserve_1 + policy_.slope_1 * r;
    return left <= policy_.last_split * r || state_.deferred(r) + nth <= reserve;
  }

  // Whether the next F0 is braided with the forward `first`. This delays `first` on all following ranks,
  // which costs too much for the first microbatches and for an F1 that is about to arrive.
  [[nodiscard]] bool pairs(int r, const Action& first, double now) const {
    if (state_.arrival(r, kF0) > now + kEpsilon || state_.alive(r) == capacity_) return false;
    const int from = first.chunk == 1 ? policy_.pair_1 : policy_.pair_0;
    return from >= 0 && first.microbatch >= from &&
           (first.chunk == 1 || state_.arrival(r, kF1) > now + 1 + kAllReduce);
  }

  Action forward(int r, int chunk) {
    state_.begin(r, forward_of(chunk));
    return writers_[r].forward(chunk);
  }
  Action backward(int r, int chunk, bool split) {
    state_.begin(r, backward_of(chunk));
    if (split) return writers_[r].input_gradient(chunk);
    state_.begin(r, kW);
    return writers_[r].backward(chunk);
  }
  Action weight_gradient(int r) {
    state_.begin(r, kW);
    return writers_[r].weight_gradient();
  }

  // Runs a block of actions that have begun; returns its end.
  double run(int r, double now, const Block& block) {
    double end = now;
    for (const Action& action : block.actions()) end += action.pass == Pass::B ? 2 : 1;
    const Pass first = block.actions().front().pass, last = block.actions().back().pass;
    if (first == last && (first == Pass::F || first == Pass::I)) {
      (block.braided() ? paired_ : alone_) += static_cast<int>(block.actions().size());
      if (!block.braided()) end += kAllReduce;
    }
    writers_[r].run(block);
    for (UnitTimer& timer : timers_) timer.run(r, block);
    state_.occupy(r, end);
    for (const Action& action : block.actions())
      if (action.pass != Pass::W)
        state_.deliver_output(r, v_hop(p_, r, step_of(action)), action.microbatch, end);
    return end;
  }

  int p_, m_, capacity_;
  Policy policy_;
  ListScheduler state_;
  std::vector<RankWriter> writers_;
  std::vector<UnitTimer> timers_;  // by kUnitAllReduces
  int alone_ = 0, paired_ = 0;     // forwards and I: alone; in a block with another of their kind
};

// Varies one parameter of the policy at a time and keeps improvements.
class Search {
 public:
  Search(int p, int m, int capacity, bool priced, KnownScores& known)
      : p_(p), m_(m), capacity_(capacity), priced_(priced), known_(known), trials_left_(most_trials(p, m)) {
    // Two starting points: few W until the cool-down, and many.
    const int half = p / 2;
    climb({.reserve_1 = 1.0 + half, .pair_0 = 1 + p / 3});
    climb({.reserve_0 = 1, .slope_0 = 1});
  }

  /// Maximum number of policies tried, which bounds the search time.
  static size_t most_trials(int p, int m) { return 1 + kTriedActions / (size_t{6} * p * m); }

  [[nodiscard]] double time() const { return best_.time; }
  [[nodiscard]] std::vector<std::vector<Block>> take() { return std::move(best_.blocks); }

 private:
  static constexpr size_t kTriedActions = size_t{1} << 21;
  static constexpr int kSweeps = 5;

  struct Found {
    Policy policy;
    double score = kNever, time = kNever;
    std::vector<std::vector<Block>> blocks;
  };

  // Coordinate descent from a starting point, in a few sweeps.
  void climb(const Policy& start) {
    const double p = p_;
    Found found;
    offer(found, start);
    double before = kNever;
    for (int sweep = 0; sweep < kSweeps && found.score < before; ++sweep) {
      before = found.score;
      vary(found, &Policy::reserve_1, {0, 1, 2, 3, p / 4, p / 2, p});
      vary(found, &Policy::slope_1, {0, 0.5, 1, 1.5});
      vary(found, &Policy::reserve_0, {0, 1, 2, 3, p / 2});
      vary(found, &Policy::slope_0, {0, 0.5, 1, 1.5});
      vary(found, &Policy::last_split, {0, 0.25, 0.5, 1, 1.5, 2, 3});
      vary(found, &Policy::patience, {0, 0.5, 1, 1.5, 2});
      vary(found, &Policy::pair_0, {-1, 1, 1 + p_ / 4, 1 + p_ / 3, 1 + p_ / 2, 1 + p_ * 3 / 4});
      vary(found, &Policy::pair_1, {-1, 0, 1, 2, 3, 1 + p_ / 2});
    }
    if (found.score < best_.score) best_ = std::move(found);
  }

  template <typename T>
  void vary(Found& found, T Policy::*number, std::initializer_list<std::type_identity_t<T>> values) {
    Policy trial = found.policy;
    for (const T value : values) {
      trial.*number = value;
      if (value != found.policy.*number) offer(found, trial);
    }
  }

  void offer(Found& found, const Policy& policy) {
    if (trials_left_ == 0) return;
    --trials_left_;
    const auto better = [&](const Score& score) { return total(score) < found.score - kEpsilon; };
    const auto known = known_.find(policy);
    if (known != known_.end() && !better(known->second)) return;
    ShortSchedule schedule(p_, m_, capacity_, policy);
    const Score score = known_[policy] = {schedule.time(), schedule.price()};
    if (better(score)) found = {policy, total(score), score.time, schedule.take()};
  }
  [[nodiscard]] double total(const Score& score) const { return score.time + (priced_ ? score.price : 0); }

  int p_, m_, capacity_;
  bool priced_;
  KnownScores& known_;
  size_t trials_left_;
  Found best_;
};

}  // namespace

std::vector<std::vector<Block>> short_stp(int p, int m, int capacity) {
  KnownScores known;
  Search few(p, m, capacity, true, known);
  if (Search::most_trials(p, m) == 1) return few.take();  // the other starting point gives the same policy
  Search fast(p, m, capacity, false, known);
  // Near m = p no order has both fewer exposed all-reduces and the least time, so exposed all-reduces have a
  // bounded penalty. It is higher where 1F1B-I, which runs multiples of p only, exists for comparison.
  const double worth_hiding = m % p == 0 ? 1.09 : 1.02;
  return (few.time() <= worth_hiding * fast.time() ? few : fast).take();
}

}  // namespace stp
