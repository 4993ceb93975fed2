// What V-Half and V-Min have in common (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): V
// placement, every backward split, and a pattern that repeats every six slots, a slot being the time of one
// pass. The pattern names four slots, for F0, F1, I1 and I0; the other two are free, and W runs there. How
// long a microbatch stays sets the memory. As published, the pattern is laid out for all microbatches and
// then moved together, and each move is checked against the memory of the whole. Here the pattern is a
// priority and a bound: each rank, slot by slot, runs what is ready, is earliest in the pattern and keeps
// within the pattern's peak, or else a W. That takes time about linear in the number of actions. Any m and p;
// an activation counts as alive from F to W.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "baselines/v_steps.h"
#include "stp/schedule/generator.h"

namespace stp::v_pattern {

constexpr int kPeriod = 6;
constexpr double kNever = std::numeric_limits<double>::infinity();

constexpr std::array<Step, 4> kLegs = {kF0, kF1, kI1, kI0};

using Counts = std::array<int, 4>;    // a number for each leg
using Pattern = std::vector<Counts>;  // by rank: the slots of microbatch 0

// When each leg of each microbatch ends.
class Ends {
 public:
  Ends(int p, int m, double p2p) : p_(p), m_(m), p2p_(p2p), ends_(kLegs.size() * p * m, kNever) {}

  double& at(Step leg, int rank, int microbatch) {
    return ends_[(static_cast<size_t>(leg) * p_ + rank) * m_ + microbatch];
  }
  // When the leg's input is there: from the neighbour, or from the leg before where the V turns.
  double input(Step leg, int rank, int microbatch) {
    const int from = leg == kF0 || leg == kI1 ? rank - 1 : rank + 1;
    if (from >= 0 && from < p_) return at(leg, from, microbatch) + p2p_;
    return leg == kF0 ? 0 : at(static_cast<Step>(leg - 1), rank, microbatch);
  }

 private:
  int p_, m_;
  double p2p_;
  std::vector<double> ends_;
};

// 1. The peak of one rank: the pattern, with each W in the first slot that is free.
inline int peak_of(const Counts& slots, int m) {
  Counts next{};
  int alive = 0, pending = 0, peak = 0;
  for (int slot = 0; next[kI0] < m; ++slot) {
    Step due = kW;
    for (const Step leg : kLegs)
      if (next[leg] < m && slots[leg] + kPeriod * next[leg] == slot) due = leg;
    if (due != kW) {
      ++next[due];
      ++(is_forward(due) ? alive : pending);
      peak = std::max(peak, alive);
    } else if (pending > 0) {
      --alive;
      --pending;
    }
  }
  return peak;
}

// What holds a rank to the pattern until it has run its last F0: its order; or, from its first I0 on, its
// slots; or nothing.
enum class Hold { order, slots, nothing };

// 2. The list schedule. A leg may overtake others of its rank only if the rest of the pattern still fits
// under the peak afterwards; so of all legs left, the earliest in the pattern can always run, and there is no
// deadlock.
class ListScheduler {
 public:
  ListScheduler(const Pattern& pattern, int m, Hold hold)
      : pattern_(pattern),
        m_(m),
        hold_(hold),
        ends_(static_cast<int>(pattern.size()), m, 0),
        orders_(pattern.size()) {
    for (const Counts& slots : pattern) ranks_.push_back({{}, 0, 0, peak_of(slots, m)});
  }

  Orders run() {
    for (size_t left = 6 * pattern_.size() * m_; left > 0; ++now_)
      for (size_t r = 0; r < pattern_.size(); ++r)
        if (step(static_cast<int>(r))) --left;
    return std::move(orders_);
  }

 private:
  struct Rank {
    Counts next{};
    int alive = 0, pending = 0, peak = 0;
  };

  [[nodiscard]] int slot(int r, const Counts& next, Step leg) const {
    return next[leg] < m_ ? pattern_[r][leg] + kPeriod * next[leg] : std::numeric_limits<int>::max();
  }
  [[nodiscard]] Step earliest(int r, const Counts& next) const {
    return *std::ranges::min_element(kLegs, {}, [&](Step leg) { return slot(r, next, leg); });
  }

  [[nodiscard]] bool is_held(int r, Step leg) const {
    const Counts& next = ranks_[r].next;
    if (hold_ == Hold::nothing || next[kF0] == m_) return false;
    if (hold_ == Hold::order) return leg != earliest(r, next);
    return next[kI0] > 0 && slot(r, next, leg) > now_;
  }

  // Whether the legs that `forward` overtakes fit under the peak after it, if each W follows its I at once.
  [[nodiscard]] bool fits(int r, Step forward) const {
    Counts next = ranks_[r].next;
    const int until = slot(r, next, forward);
    int open = ranks_[r].alive - ranks_[r].pending + 1;
    ++next[forward];
    while (open <= ranks_[r].peak) {
      const Step leg = earliest(r, next);
      if (slot(r, next, leg) > until) return true;
      ++next[leg];
      open += is_forward(leg) ? 1 : -1;
    }
    return false;
  }

  // One slot of one rank; false where it idles.
  bool step(int r) {
    Rank& rank = ranks_[r];
    Step best = kW;
    for (const Step leg : kLegs) {
      if (rank.next[leg] == m_ || ends_.input(leg, r, rank.next[leg]) > now_ || is_held(r, leg)) continue;
      if (best != kW && slot(r, rank.next, best) < slot(r, rank.next, leg)) continue;
      if (!is_forward(leg) || fits(r, leg)) best = leg;
    }
    if (best <= kF1 && rank.alive == rank.peak) best = kW;  // makes room for it
    if (best == kW) {
      if (rank.pending == 0) return false;
      --rank.alive;
      --rank.pending;
    } else {
      ends_.at(best, r, rank.next[best]++) = now_ + 1;
      ++(is_forward(best) ? rank.alive : rank.pending);
    }
    orders_[r].push_back(best);
    return true;
  }

  const Pattern& pattern_;
  int m_;
  Hold hold_;
  int now_ = 0;
  Ends ends_;
  std::vector<Rank> ranks_;
  Orders orders_;
};

// When the last rank is done, if every rank runs its order as early as it can.
inline double makespan(const Orders& orders, int m, const PassCosts& costs) {
  const int p = static_cast<int>(orders.size());
  Ends ends(p, m, costs.p2p);
  std::vector<double> time(p, 0);
  std::vector<size_t> at(p, 0);
  std::vector<Counts> next(p, Counts{});
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < p; ++r) {
      for (; at[r] < orders[r].size(); ++at[r]) {
        const Step step = orders[r][at[r]];
        if (step == kW) {
          time[r] += costs.W;
          continue;
        }
        const double input = ends.input(step, r, next[r][step]);
        if (input == kNever) break;
        time[r] = std::max(time[r], input) + (is_forward(step) ? costs.F : costs.I);
        ends.at(step, r, next[r][step]++) = time[r];
        moved = true;
      }
    }
  }
  return *std::ranges::max_element(time);
}

// 3. Which hold is best depends on p and m: the shortest order for equal costs is taken; among equals, the
// one that is shortest where W is short and transfers take time. (These costs are sums of powers of two, so
// that equal is equal.)
inline Schedule make(const char* name, const Pattern& pattern, int m) {
  Orders best;
  std::pair<double, double> least{kNever, kNever};
  for (const Hold hold : {Hold::slots, Hold::nothing, Hold::order}) {
    Orders orders = ListScheduler(pattern, m, hold).run();
    const std::pair length{makespan(orders, m, {1, 1, 1, 0}), makespan(orders, m, {1, 1, 0.75, 0.0625})};
    if (length < least) {
      least = length;
      best = std::move(orders);
    }
  }
  return schedule_of(name, best, m);
}

}  // namespace stp::v_pattern
