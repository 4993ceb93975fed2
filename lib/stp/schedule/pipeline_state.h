// The state of a pipeline that runs block by block: when each rank is free, which inputs have arrived, and
// which rank is next. timing.h uses it to time schedules, list_scheduler.h to make them.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "stp/schedule/placement.h"

namespace stp {

/// The time of an unknown event.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A microbatch's hops: forward through all S virtual stages, then backward. F of stage s is hop s; I or B of
/// stage s is hop 2S − 1 − s. Each hop waits for the output of the hop before it. W is no hop. The hops of a
/// second pipeline follow those of the first, behind one that nothing waits for.
constexpr int hop_of(int stages, int stage, bool backward) {
  return backward ? 2 * stages - 1 - stage : stage;
}
inline int hop_of(const Placement& placement, int stage, bool backward) {
  const int depth = placement.depth();
  return stage / depth * (2 * depth + 1) + hop_of(depth, stage % depth, backward);
}
/// The virtual stage of a hop.
constexpr int stage_of_hop(int stages, int hop) { return hop_of(stages, hop, hop >= stages); }

/// Times begin at 0, in any unit. Ranks, hops and microbatches must exist; this is not checked.
class PipelineState {
 public:
  /// No input.
  static constexpr size_t kNoInput = ~size_t{0};

  /// A transfer between ranks takes `p2p`. `more`: further inputs, numbered behind those of hops, which
  /// deliver() brings; with them no input is there at the start.
  PipelineState(const Placement& placement, int microbatches, double p2p, int more = 0);

  /// Starts again: all ranks are free, and only the inputs of hop 0 have arrived.
  void restart(double p2p);

  /// Index of the input of a hop for a microbatch.
  [[nodiscard]] size_t input(int hop, int microbatch) const {
    return static_cast<size_t>(hop) * stride_ + microbatch;
  }
  /// Arrival time of an input; kNever if it is unknown or there is no such microbatch.
  [[nodiscard]] double arrival(size_t input) const { return arrivals_[input]; }
  /// When the rank is free: the end of its last block.
  [[nodiscard]] double free(int rank) const { return ranks_[rank].free; }

  /// Makes the rank busy until `end`.
  void occupy(int rank, double end) { ranks_[rank].free = end; }
  /// The output of a hop on `rank` is ready at `end`; it is the next hop's input.
  void deliver_output(int rank, int hop, int microbatch, double end) {
    const int receiver = rank_of_hop_[hop + 1];
    if (receiver == kNoRank) return;
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

  /// An input arrives at all ranks that need it. For run_by_input() alone.
  void deliver(size_t input, double there) {
    arrivals_[input] = there;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].awaited == input) {
        ranks_[rank].awaited = kNoInput;
        runnable_.push_back(static_cast<int>(rank));
      }
  }

  /// Calls choose(rank, now) in the order of time, at equal times in the order of ranks. `choose` runs the
  /// rank's next block and returns the time of the next call: when the rank is free or, if it ran nothing,
  /// any time after `now`. A rank that ran nothing is called at the latest when its next input arrives.
  template <typename Choose>
  void run_by_time(const Choose& choose) {
    by_time_ = true;
    for (int rank = 0; rank < pp(); ++rank) wake(rank, 0);
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].wake != now) continue;  // replaced by an earlier event
      ranks_[rank].wake = kNever;
      wake(rank, choose(rank, now));
    }
  }

  /// Calls follow(rank), not in the order of time. `follow` runs what it can and returns the input that it
  /// waits for, or kNoInput at the end. It is called again once that input's arrival is known.
  template <typename Follow>
  void run_by_input(const Follow& follow) {
    runnable_.clear();
    for (int rank = pp(); rank-- > 0; runnable_.push_back(rank)) ranks_[rank].awaited = kNoInput;
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      ranks_[rank].awaited = follow(rank);
    }
  }
  /// Ends run_by_input(). `follow` calls it.
  void stop() { runnable_.clear(); }

 private:
  static constexpr int kNoRank = -1;
  struct Rank {
    double free = 0;
    double wake = kNever;       // by time: its next call
    size_t awaited = kNoInput;  // by input: the rank waits for it
  };
  using Event = std::pair<double, int>;  // time, rank

  [[nodiscard]] int pp() const { return static_cast<int>(ranks_.size()); }
  void wake(int rank, double time);

  size_t stride_;  // inputs per hop: all microbatches, and one that never arrives
  double p2p_ = 0;
  bool begins_;                   // inputs of hop 0 are there at the start
  bool by_time_ = false;          // it runs by time
  std::vector<int> rank_of_hop_;  // with kNoRank at the end of each pipeline
  std::vector<double> arrivals_;  // by input
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<int> runnable_;
};

}  // namespace stp
