#include "stp/schedule/timing.h"

#include <algorithm>
#include <array>
#include <map>

#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/vocabulary.h"

namespace stp {

int hop_of(const Placement& placement, int rank, const Action& action) {
  return hop_of(placement, placement.stage(rank, action.chunk), is_backward(action.pass));
}

namespace {

// What all ranks make together, with a shared vocabulary.
class Sums {
 public:
  Sums(const Schedule& schedule, PipelineState& state) : parts_(schedule.pp() + 1), state_(state) {}

  // A rank has made its part.
  void add(size_t input, double end) {
    Sum& sum = sums_.try_emplace(input, Sum{parts_}).first->second;
    sum.latest = std::max(sum.latest, end);
    if (--sum.missing == 0) state_.deliver(input, sum.latest);
  }
  // The rank that adds the parts up needs the sum.
  void need(size_t input, double now) {
    if (const auto found = sums_.find(input); found != sums_.end() && found->second.needed) return;
    add(input, now);
    sums_.at(input).needed = true;
  }

 private:
  struct Sum {
    int missing;  // parts of all ranks, and that the rank that adds them up needs it
    bool needed = false;
    double latest = 0;
  };
  const int parts_;
  PipelineState& state_;
  std::map<size_t, Sum> sums_;  // by input
};

// Runs every block that can start, and calls ran(rank, start, end) for each, in the order of its rank.
template <typename Ran>
void run_blocks(const Schedule& schedule, const PassCosts& costs, const Ran& ran) {
  const std::array<double, kPasses> durations{costs.F, costs.I, costs.W, costs.I + costs.W};  // by pass
  const PassInputs inputs(schedule);
  const bool shared = inputs.vocabulary() != Vocabulary::whole;
  PipelineState state(schedule.placement, schedule.microbatches, costs.p2p, shared ? PassInputs::kMore : 0);
  Sums sums(schedule, state);
  const auto give = [&](int rank, const Action& action, int made, double end) {
    if (is_of_vocabulary(action.pass))
      sums.add(state.input(made, action.microbatch), end);
    else if (!shared || made < 2 * schedule.placement.stages())
      state.deliver_output(rank, made - 1, action.microbatch, end);
    else
      state.deliver(state.input(made, action.microbatch), end);
  };
  std::vector<size_t> next(schedule.pp());  // by rank
  state.run_by_input([&](int rank) {
    const PassInputs::OfAction* const of_rank = inputs.of_rank(rank);
    const auto of = [&](const Action& action) {
      return of_rank[action.chunk * kPasses + static_cast<size_t>(action.pass)];
    };
    for (const auto& blocks = schedule.ranks[rank]; next[rank] < blocks.size(); ++next[rank]) {
      const auto actions = blocks[next[rank]].actions();
      double start = state.free(rank), duration = 0;
      for (const Action& action : actions) {
        duration += durations[static_cast<size_t>(action.pass)];
        const int needed = of(action).needed;
        if (needed == PassInputs::kNothing) continue;
        const size_t input = state.input(needed, action.microbatch);
        if (shared && inputs.summed_by(needed) == rank) sums.need(input, state.free(rank));
        if (state.arrival(input) == kNever) return input;
        start = std::max(start, state.arrival(input));
      }
      const double end = start + duration;
      ran(rank, start, end);
      state.occupy(rank, end);
      for (const Action& action : actions)
        if (const int made = of(action).made; made != PassInputs::kNothing) give(rank, action, made, end);
    }
    return PipelineState::kNoInput;
  });
}

}  // namespace

Timing time_blocks(const Schedule& schedule, const PassCosts& costs) {
  Timing timing(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) timing[rank].reserve(schedule.ranks[rank].size());
  run_blocks(schedule, costs, [&](int rank, double start, double end) {
    timing[rank].push_back({start, end});
  });
  return timing;
}

std::vector<size_t> startable_blocks(const Schedule& schedule) {
  std::vector<size_t> count(schedule.pp());
  run_blocks(schedule, {}, [&](int rank, double, double) { ++count[rank]; });
  return count;
}

}  // namespace stp
