// Hanayo (Liu et al., SC 2023): full backwards on a placement of waves, W waves with v = 2W chunks. Its order
// is not public. Ours: each rank, as soon as it is free, runs the next step that is there, by one of two
// rules, and holds as much as with 1F1B, p microbatches of its chunks. The rule that is shorter for F = I = W
// is taken. Any m, p and v.
#include <algorithm>
#include <utility>
#include <vector>

#include "stp/schedule/generator.h"
#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/timing.h"

namespace stp {
namespace {

// Which of the steps that are there runs: the one of the oldest microbatch, or the forward that is furthest
// on its way, else the backward that is.
enum class First { oldest, forward };

class WaveScheduler : public PipelineState {
 public:
  WaveScheduler(const Placement& placement, int m, First first)
      : PipelineState(placement, m, 0),
        placement_(placement),
        first_(first),
        done_(2 * placement.stages()),
        alive_(placement.ranks()),
        blocks_(placement.ranks()) {}

  std::vector<std::vector<Block>> run() {
    run_by_time([this](int r, double now) { return choose(r, now); });
    return std::move(blocks_);
  }

 private:
  [[nodiscard]] bool is_forward(int hop) const { return hop < placement_.stages(); }
  // A forward leaves memory for one of each later chunk, so that the microbatch ahead can always go on.
  [[nodiscard]] bool ready(int r, int chunk, int hop, double now) const {
    const int v = placement_.chunks(), most = placement_.ranks() * v - (v - 1 - chunk);
    return arrival(input(hop, done_[hop])) <= now && (!is_forward(hop) || alive_[r] < most);
  }

  double choose(int r, double now) {
    int best = -1, best_chunk = 0;
    double next = kNever;
    const auto rank_of = [&](int hop) {
      return first_ == First::oldest ? std::pair{done_[hop], -hop} : std::pair{is_forward(hop) ? 0 : 1, -hop};
    };
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      for (const bool backward : {false, true}) {
        const int hop = hop_of(placement_.stages(), placement_.stage(r, chunk), backward);
        if (const double there = arrival(input(hop, done_[hop])); there > now) next = std::min(next, there);
        if (!ready(r, chunk, hop, now) || (best >= 0 && rank_of(best) < rank_of(hop))) continue;
        best = hop;
        best_chunk = chunk;
      }
    if (best < 0) return next;
    const bool forward = is_forward(best);
    const int microbatch = done_[best]++;
    alive_[r] += forward ? 1 : -1;
    occupy(r, now + (forward ? 1 : 2));
    deliver_output(r, best, microbatch, free(r));
    blocks_[r].emplace_back(
        Action{forward ? Pass::F : Pass::B, static_cast<int16_t>(best_chunk), microbatch});
    return free(r);
  }

  const Placement& placement_;
  const First first_;
  std::vector<int> done_;   // by hop: microbatches
  std::vector<int> alive_;  // by rank: activations
  std::vector<std::vector<Block>> blocks_;
};

Schedule make_hanayo(const GeneratorRequest& request) {
  Schedule best{"", Placement::wave(request.pp, request.chunks), request.microbatches, {}};
  double least = kNever;
  for (const First first : {First::oldest, First::forward}) {
    Schedule schedule = best;
    schedule.ranks = WaveScheduler(best.placement, best.microbatches, first).run();
    double length = 0;
    for (const auto& times : time_blocks(schedule)) length = std::max(length, times.back().end);
    if (length >= least) continue;
    least = length;
    best = std::move(schedule);
  }
  return best;
}

}  // namespace

extern const Generator schedule_hanayo = {
    .name = "hanayo",
    .summary = "1F1B's passes and memory on waves of chunks (after Hanayo, SC 2023)",
    .chunks = 2,
    .any_chunks = true,
    .make = make_hanayo};

}  // namespace stp
