// A pipeline that is run block by block: when each rank is free, which inputs are there, and which rank goes
// on next. What times finished schedules (timing.h) and makes new ones (list_scheduler.h) rests on it.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "stp/schedule/placement.h"

namespace stp {

/// The time of what does not happen, as far as known.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A microbatch's hops: forward through all virtual stages, then backward. Of S stages, F of stage s is hop
/// s, I or B of stage s is hop 2S − 1 − s. Each hop waits for the output of the hop before it. W is no hop.
constexpr int hop_of(int stages, int stage, bool backward) {
  return backward ? 2 * stages - 1 - stage : stage;
}
/// The virtual stage of a hop.
constexpr int stage_of_hop(int stages, int hop) { return hop_of(stages, hop, hop >= stages); }

/// Times are in any unit and begin at 0. Ranks, hops and microbatches that do not exist are not checked for.
class PipelineState {
 public:
  /// In place of the index of an input: none.
  static constexpr size_t kNoInput = ~size_t{0};

  /// From rank to rank a tensor takes `p2p`.
  PipelineState(const Placement& placement, int microbatches, double p2p);

  /// All ranks are free, and no input is there but those of hop 0.
  void restart(double p2p);

  /// The input of a hop for a microbatch, as an index.
  [[nodiscard]] size_t input(int hop, int microbatch) const {
    return static_cast<size_t>(hop) * stride_ + microbatch;
  }
  /// When an input is there; kNever if that is not known yet, or if there is no such microbatch.
  [[nodiscard]] double arrival(size_t input) const { return arrivals_[input]; }
  /// When the rank is free: the end of what it ran last.
  [[nodiscard]] double free(int rank) const { return ranks_[rank].free; }

  /// The rank is busy until `end`.
  void occupy(int rank, double end) { ranks_[rank].free = end; }
  /// A hop on `rank` has its output ready at `end`, which is the input of the hop behind it.
  void hand_on(int rank, int hop, int microbatch, double end) {
    const int receiver = rank_of_hop_[hop + 1];
    if (receiver == kNobody) return;
    const size_t output = input(hop + 1, microbatch);
    const double there = receiver == rank ? end : end + p2p_;
    arrivals_[output] = there;
    if (receiver == rank) return;
    if (by_time_) {
      wake(receiver, std::max(ranks_[receiver].free, there));
    } else if (ranks_[receiver].awaited == output) {
      ranks_[receiver].awaited = kNoInput;
      runnable_.push_back(receiver);
    }
  }

  /// In the order of time, at equal times of ranks, calls choose(rank, now), which runs what the rank does
  /// then and tells when it is to be asked next: when it is free; or, where it does nothing, at any time
  /// after `now`. A rank that does nothing is asked at the latest when one more input is there.
  template <typename Choose>
  void run_by_time(const Choose& choose) {
    by_time_ = true;
    for (int rank = 0; rank < pp(); ++rank) wake(rank, 0);
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].wake != now) continue;  // an earlier event has taken its place
      ranks_[rank].wake = kNever;
      wake(rank, choose(rank, now));
    }
  }

  /// In no order of time, calls follow(rank), which runs what it can and returns the input that it waits for,
  /// then again once that is known; kNoInput if nothing is left.
  template <typename Follow>
  void run_by_input(const Follow& follow) {
    for (int rank = pp(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      ranks_[rank].awaited = follow(rank);
    }
  }
  /// Ends run_by_input, called by `follow`.
  void stop() { runnable_.clear(); }

 private:
  static constexpr int kNobody = -1;
  struct Rank {
    double free = 0;
    double wake = kNever;       // by time: when it is asked next
    size_t awaited = kNoInput;  // by input: what it waits for
  };
  using Event = std::pair<double, int>;  // time, rank

  [[nodiscard]] int pp() const { return static_cast<int>(ranks_.size()); }
  void wake(int rank, double time);

  size_t stride_;  // inputs of a hop: those of all microbatches, and one that never comes
  double p2p_ = 0;
  bool by_time_ = false;          // whether it runs by time
  std::vector<int> rank_of_hop_;  // with kNobody at the end
  std::vector<double> arrivals_;  // by input
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<int> runnable_;
};

}  // namespace stp
