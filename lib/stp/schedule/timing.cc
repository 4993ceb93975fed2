#include "stp/schedule/timing.h"

#include <algorithm>
#include <array>

#include "stp/schedule/pipeline_state.h"

namespace stp {

int hop_of(const Placement& placement, int rank, const Action& action) {
  return hop_of(placement, placement.stage(rank, action.chunk), is_backward(action.pass));
}

Timing time_blocks(const Schedule& schedule, const PassCosts& costs) {
  const std::array<double, 4> durations{costs.F, costs.I, costs.W, costs.I + costs.W};  // by pass
  const auto hop = [&](int rank, const Action& action) { return hop_of(schedule.placement, rank, action); };
  PipelineState state(schedule.placement, schedule.microbatches, costs.p2p);
  Timing timing(schedule.pp());
  state.run_by_input([&](int rank) {
    const auto& blocks = schedule.ranks[rank];
    timing[rank].reserve(blocks.size());
    while (timing[rank].size() < blocks.size()) {
      const auto actions = blocks[timing[rank].size()].actions();
      double start = state.free(rank), duration = 0;
      for (const Action& action : actions) {
        duration += durations[static_cast<int>(action.pass)];
        if (action.pass == Pass::W) continue;
        const size_t input = state.input(hop(rank, action), action.microbatch);
        if (state.arrival(input) == kNever) return input;
        start = std::max(start, state.arrival(input));
      }
      const double end = start + duration;
      timing[rank].push_back({start, end});
      state.occupy(rank, end);
      for (const Action& action : actions)
        if (action.pass != Pass::W) state.deliver_output(rank, hop(rank, action), action.microbatch, end);
    }
    return PipelineState::kNoInput;
  });
  return timing;
}

}  // namespace stp
