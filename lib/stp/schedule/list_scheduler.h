// List scheduling on the V placement, shared by generators that build an order step by step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/schedule.h"

namespace stp {

/// A rank's step: one of the four steps of a microbatch in order (forward down and up the ranks, then
/// backward), or kW, the oldest deferred weight gradient.
enum Step : uint8_t { kF0, kF1, kI1, kI0, kW };
inline constexpr std::array<Step, 4> kSteps = {kF0, kF1, kI1, kI0};

constexpr bool is_forward(Step step) { return step <= kF1; }
constexpr int chunk_of(Step step) { return step == kF1 || step == kI1 ? 1 : 0; }
/// The hop of `step` on `rank`, with p ranks. Not for kW.
constexpr int v_hop(int p, int rank, Step step) {
  const bool goes_down = step == kF0 || step == kI1;
  return goes_down ? step * p + rank : (step + 1) * p - 1 - rank;
}
/// Costs by step.
constexpr std::array<double, 5> step_costs(const PassCosts& costs) {
  return {costs.F, costs.F, costs.I, costs.I, costs.W};
}

/// Steps by rank, without braids and full backwards. Each step takes the microbatches in order.
using StepOrder = std::vector<std::vector<Step>>;
Schedule schedule_of(const StepOrder& order, int microbatches);
/// The schedule's makespan, without making the schedule: every rank runs its steps as early as possible.
double makespan(const StepOrder& order, int microbatches, const PassCosts& costs);

/// A pipeline in which each step takes the microbatches in order.
class ListScheduler : public PipelineState {
 public:
  /// p ≥ 1 ranks, m ≥ 1 microbatches.
  ListScheduler(int p, int m, double p2p = 0);
  void restart(double p2p);

  /// The input of the step's next microbatch. After the last microbatch it never arrives.
  [[nodiscard]] size_t input(int rank, Step step) const {
    return ranks_[rank].first[step] + ranks_[rank].done[step];
  }
  [[nodiscard]] double arrival(int rank, Step step) const {
    return PipelineState::arrival(input(rank, step));
  }
  /// The first known arrival of an input of the rank after `time`, or kNever.
  [[nodiscard]] double next_arrival(int rank, double time) const {
    double next = kNever;
    for (const Step step : kSteps)
      if (arrival(rank, step) > time) next = std::min(next, arrival(rank, step));
    return next;
  }
  /// By step, the number of microbatches that have begun it.
  [[nodiscard]] const std::array<int, 4>& done(int rank) const { return ranks_[rank].done; }
  /// Activations held, from F to W.
  [[nodiscard]] int alive(int rank) const { return ranks_[rank].alive; }
  /// Weight gradients deferred.
  [[nodiscard]] int deferred(int rank) const { return ranks_[rank].deferred; }

  /// Runs a step until `end`: its next microbatch, whose input must have arrived, or the oldest W.
  void run(int rank, Step step, double end) {
    const int microbatch = begin(rank, step);
    occupy(rank, end);
    if (step != kW) deliver_output(rank, v_hop(p_, rank, step), microbatch, end);
  }
  /// Begins a step without running it, for steps that share a block. Returns the microbatch (for W a number
  /// without meaning). A full backward begins I and W.
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

  /// Runs the steps of `order`, each as early as possible, from where it was left. Before each step it calls
  /// before(rank, position, arrival), which may run W on that rank and returns false to stop. `arrival` is
  /// the arrival of the step's input, 0 for W. Throws std::logic_error if the order deadlocks.
  template <typename Before>
  void follow(const StepOrder& order, const PassCosts& costs, const Before& before) {
    const std::array<double, 5> durations = step_costs(costs);
    int unfinished = p_;  // ranks
    run_by_input([&](int rank) {
      size_t& next = ranks_[rank].next;
      for (const auto& steps = order[rank]; next < steps.size(); ++next) {
        const Step step = steps[next];
        const double there = step == kW ? 0 : arrival(rank, step);
        if (there == kNever) return input(rank, step);
        if (!before(rank, next, there)) {
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
    size_t next = 0;  // of follow(): a position in the rank's order
  };
  int p_;
  std::vector<Rank> ranks_;
};

}  // namespace stp
