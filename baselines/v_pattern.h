// The common part of V-Half and V-Min (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): V
// placement, every backward split, and a pattern that repeats every six slots. A slot is the time of one
// pass. The pattern names four slots, for F0, F1, I1 and I0; W runs in the other two. A microbatch's time on
// a rank determines the memory. The published method lays the pattern out for all microbatches and then
// compacts it, with each move checked against the memory limit. Here the pattern is a priority and a bound:
// in each slot, each rank runs the ready step that is earliest in the pattern and stays within the pattern's
// peak, or else a W. The time is about linear in the number of actions. Any m and p. An activation counts as
// alive from F to W.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "stp/schedule/generator.h"
#include "stp/schedule/list_scheduler.h"

namespace stp::v_pattern {

constexpr int kPeriod = 6;

using Counts = std::array<int, 4>;    // a number for each step
using Pattern = std::vector<Counts>;  // by rank: the slots of microbatch 0

// 1. The peak of one rank: the pattern, with each W in the first free slot.
inline int peak_of(const Counts& slots, int m) {
  Counts next{};
  int alive = 0, deferred = 0, peak = 0;
  for (int slot = 0; next[kI0] < m; ++slot) {
    Step due = kW;
    for (const Step step : kSteps)
      if (next[step] < m && slots[step] + kPeriod * next[step] == slot) due = step;
    if (due != kW) {
      ++next[due];
      ++(is_forward(due) ? alive : deferred);
      peak = std::max(peak, alive);
    } else if (deferred > 0) {
      --alive;
      --deferred;
    }
  }
  return peak;
}

// The rank follows the pattern until its last F0: its order, or from its first I0 on its slots, or neither.
enum class Hold { order, slots, nothing };

// 2. The list schedule. A step may overtake others of its rank only if the rest of the pattern then still
// fits under the peak. The earliest remaining step of the pattern can therefore always run, and there is no
// deadlock.
class PatternScheduler {
 public:
  PatternScheduler(const Pattern& pattern, const std::vector<int>& peaks, int most, int m, Hold hold)
      : pattern_(pattern),
        peaks_(peaks),
        most_(most),
        m_(m),
        hold_(hold),
        state_(static_cast<int>(pattern.size()), m),
        order_(pattern.size()) {}

  StepOrder run() {
    for (size_t left = 6 * pattern_.size() * m_; left > 0; ++now_)
      for (size_t r = 0; r < pattern_.size(); ++r)
        if (run_slot(static_cast<int>(r))) --left;
    return std::move(order_);
  }

 private:
  [[nodiscard]] int slot(int r, const Counts& next, Step step) const {
    return next[step] < m_ ? pattern_[r][step] + kPeriod * next[step] : std::numeric_limits<int>::max();
  }
  [[nodiscard]] Step earliest(int r, const Counts& next) const {
    return *std::ranges::min_element(kSteps, {}, [&](Step step) { return slot(r, next, step); });
  }

  [[nodiscard]] bool is_held(int r, Step step) const {
    const Counts& next = state_.done(r);
    if (hold_ == Hold::nothing || next[kF0] == m_) return false;
    if (hold_ == Hold::order) return step != earliest(r, next);
    return next[kI0] > 0 && slot(r, next, step) > now_;
  }

  // Whether the steps that `forward` overtakes fit under the peak after it, if W directly follows each I.
  [[nodiscard]] bool fits(int r, Step forward) const {
    Counts next = state_.done(r);
    const int until = slot(r, next, forward);
    int open = state_.alive(r) - state_.deferred(r) + 1;
    ++next[forward];
    while (open <= std::max(peaks_[r], most_)) {
      const Step step = earliest(r, next);
      if (slot(r, next, step) > until) return true;
      ++next[step];
      open += is_forward(step) ? 1 : -1;
    }
    return false;
  }

  // Runs one slot of one rank. Returns false if the rank is idle.
  bool run_slot(int r) {
    const Counts& next = state_.done(r);
    Step best = kW;
    for (const Step step : kSteps) {
      if (state_.arrival(r, step) > now_ || is_held(r, step)) continue;
      if (best != kW && slot(r, next, best) < slot(r, next, step)) continue;
      if (!is_forward(step) || fits(r, step)) best = step;
    }
    const int most = state_.deferred(r) > 0 ? peaks_[r] : std::max(peaks_[r], most_);
    if (is_forward(best) && state_.alive(r) >= most) best = kW;  // frees memory for it
    if (best == kW && state_.deferred(r) == 0) return false;
    state_.run(r, best, now_ + 1);
    order_[r].push_back(best);
    return true;
  }

  const Pattern& pattern_;
  const std::vector<int>& peaks_;  // by rank
  int most_;                       // held where there is no W to run instead
  int m_;
  Hold hold_;
  int now_ = 0;
  ListScheduler state_;
  StepOrder order_;
};

// 3. The best hold depends on p and m. The shortest order for equal costs is taken; among equals, the order
// that is shortest with short W and slow transfers. (These costs are sums of powers of two, so sums are
// exact.) With few microbatches, ranks without a W to run hold up to the largest peak where that is shorter.
inline Schedule make(const Pattern& pattern, int m) {
  std::vector<int> peaks;
  for (const Counts& slots : pattern) peaks.push_back(peak_of(slots, m));
  StepOrder best;
  std::pair<double, double> least{kNever, kNever};
  for (int most = 0;; most = std::ranges::max(peaks), least.second = 0) {
    for (const Hold hold : {Hold::slots, Hold::nothing, Hold::order}) {
      StepOrder order = PatternScheduler(pattern, peaks, most, m, hold).run();
      std::pair length{makespan(order, m, {1, 1, 1, 0}), kNever};
      if (length.first <= least.first) length.second = makespan(order, m, {1, 1, 0.75, 0.0625});
      if (length < least) {
        least = length;
        best = std::move(order);
      }
    }
    if (2 * m >= static_cast<int>(pattern.size()) || most > 0) return schedule_of(best, m);
  }
}

}  // namespace stp::v_pattern
