// List scheduling on the V placement, shared by generators that build an order step by step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/schedule.h"

namespace stp {

/// What a rank runs: the four steps of a microbatch in order (forward down and up the ranks, then backward),
/// and kW, the oldest deferred weight gradient.
enum Step : uint8_t { kF0, kF1, kI1, kI0, kW };
inline constexpr std::array<Step, 4> kSteps = {kF0, kF1, kI1, kI0};

constexpr bool is_forward(Step step) { return step <= kF1; }
constexpr int chunk_of(Step step) { return step == kF1 || step == kI1 ? 1 : 0; }
/// The hop of a step other than kW on `rank`, with p ranks.
constexpr int v_hop(int p, int rank, Step step) {
  const bool goes_down = step == kF0 || step == kI1;
  return goes_down ? step * p + rank : (step + 1) * p - 1 - rank;
}
/// By step.
constexpr std::array<double, 5> step_costs(const PassCosts& costs) {
  return {costs.F, costs.F, costs.I, costs.I, costs.W};
}

/// By rank, the steps of an order without braids and full backwards; microbatches follow from counting.
using StepOrder = std::vector<std::vector<Step>>;
Schedule schedule_of(const std::string& name, const StepOrder& order, int microbatches);
/// The end of the last step if every rank runs its steps as early as possible: the schedule's makespan,
/// without making the schedule.
double makespan(const StepOrder& order, int microbatches, const PassCosts& costs);

/// A pipeline in which each step takes the microbatches in order.
class ListScheduler : public PipelineState {
 public:
  /// p ≥ 1 ranks, m ≥ 1 microbatches.
  ListScheduler(int p, int m, double p2p = 0);
  void restart(double p2p);

  /// The input of the step's next microbatch. If none is left, it never arrives.
  [[nodiscard]] size_t input(int rank, Step step) const {
    return ranks_[rank].first[step] + ranks_[rank].done[step];
  }
  [[nodiscard]] double arrival(int rank, Step step) const {
    return PipelineState::arrival(input(rank, step));
  }
  /// The first known arrival of an input of the rank after `time`; else kNever.
  [[nodiscard]] double next_arrival(int rank, double time) const {
    double next = kNever;
    for (const Step step : kSteps)
      if (arrival(rank, step) > time) next = std::min(next, arrival(rank, step));
    return next;
  }
  /// By step, the number of microbatches for which it has begun.
  [[nodiscard]] const std::array<int, 4>& done(int rank) const { return ranks_[rank].done; }
  /// Activations held, from F to W.
  [[nodiscard]] int alive(int rank) const { return ranks_[rank].alive; }
  /// Weight gradients deferred.
  [[nodiscard]] int deferred(int rank) const { return ranks_[rank].deferred; }

  /// Runs a step for its next microbatch, whose input must have arrived, or the oldest W, until `end`.
  void run(int rank, Step step, double end) {
    const int microbatch = begin(rank, step);
    occupy(rank, end);
    if (step != kW) deliver_output(rank, v_hop(p_, rank, step), microbatch, end);
  }
  /// Only begins a step, for steps that share a block. Returns the microbatch (of W a meaningless number).
  /// For a full backward, begin I and W.
  int begin(int rank, Step step) {
    Rank& here = ranks_[rank];
    if (step == kW) {
      --here.alive;
      --here.deferred;
      return 0;
    }
    ++(is_forward(step) ? here.alive : here.deferred);
    return here.done[step]++;
  }

  /// Runs the steps of `order`, each as early as possible. Before each step calls before(rank, position,
  /// arrival), which may run W on that rank; `arrival` is that of the input of the step at that position, 0
  /// for W. Stops if it returns false. Throws std::logic_error if the order deadlocks.
  template <typename Before>
  void follow(const StepOrder& order, const PassCosts& costs, const Before& before) {
    const std::array<double, 5> durations = step_costs(costs);
    std::vector<size_t> next(p_);  // by rank: a position in its order
    int unfinished = p_;           // ranks
    run_by_input([&](int rank) {
      for (const auto& steps = order[rank]; next[rank] < steps.size(); ++next[rank]) {
        const Step step = steps[next[rank]];
        const double there = step == kW ? 0 : arrival(rank, step);
        if (there == kNever) return input(rank, step);
        if (!before(rank, next[rank], there)) {
          unfinished = 0;  // no deadlock
          stop();
          return kNoInput;
        }
        run(rank, step, std::max(there, free(rank)) + durations[step]);
      }
      --unfinished;
      return kNoInput;
    });
    if (unfinished > 0) throw std::logic_error("the order deadlocks");
  }

 private:
  struct Rank {
    std::array<size_t, 4> first{};  // by step: the input of microbatch 0
    std::array<int, 4> done{};
    int alive = 0, deferred = 0;
  };
  int p_;
  std::vector<Rank> ranks_;
};

}  // namespace stp
