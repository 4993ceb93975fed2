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

Timing time_blocks(const Schedule& schedule, const PassCosts& costs) {
  const std::array<double, kPasses> durations{costs.F, costs.I, costs.W, costs.I + costs.W};  // by pass
  const PassInputs inputs(schedule);
  const bool shared = inputs.vocabulary() != Vocabulary::whole;
  PipelineState state(schedule.placement, schedule.microbatches, costs.p2p, shared ? PassInputs::kMore : 0);
  struct Sum {
    int missing;  // parts of all ranks, and that the rank that adds them up needs it
    bool needed = false;
    double latest = 0;
  };
  std::map<size_t, Sum> sums;  // by input
  const auto add_to_sum = [&](size_t input, double end) -> Sum& {
    Sum& sum = sums.try_emplace(input, Sum{schedule.pp() + 1}).first->second;
    sum.latest = std::max(sum.latest, end);
    if (--sum.missing == 0) state.deliver(input, sum.latest);
    return sum;
  };
  const auto need_sum = [&](int rank, int needed, size_t input) {
    if (inputs.summed_by(needed) != rank) return;
    if (const auto found = sums.find(input); found == sums.end() || !found->second.needed)
      add_to_sum(input, state.free(rank)).needed = true;
  };
  const auto give = [&](int rank, const Action& action, double end) {
    const int made = inputs.made(rank, action);
    if (made == PassInputs::kNothing) return;
    const size_t input = state.input(made, action.microbatch);
    if (is_of_vocabulary(action.pass))
      add_to_sum(input, end);
    else if (!shared || made < 2 * schedule.placement.stages())
      state.deliver_output(rank, made - 1, action.microbatch, end);
    else
      state.deliver(input, end);
  };
  Timing timing(schedule.pp());
  state.run_by_input([&](int rank) {
    const auto& blocks = schedule.ranks[rank];
    timing[rank].reserve(blocks.size());
    while (timing[rank].size() < blocks.size()) {
      const auto actions = blocks[timing[rank].size()].actions();
      double start = state.free(rank), duration = 0;
      for (const Action& action : actions) {
        duration += durations[static_cast<int>(action.pass)];
        const int needed = inputs.needed(rank, action);
        if (needed == PassInputs::kNothing) continue;
        const size_t input = state.input(needed, action.microbatch);
        if (shared) need_sum(rank, needed, input);
        if (state.arrival(input) == kNever) return input;
        start = std::max(start, state.arrival(input));
      }
      const double end = start + duration;
      timing[rank].push_back({start, end});
      state.occupy(rank, end);
      for (const Action& action : actions) give(rank, action, end);
    }
    return PipelineState::kNoInput;
  });
  return timing;
}

}  // namespace stp
