#include "stp/schedule/list_scheduler.h"

#include "stp/schedule/rank_writer.h"

namespace stp {

Schedule schedule_of(const StepOrder& order, int microbatches) {
  Schedule schedule{"", Placement::v(static_cast<int>(order.size())), microbatches, {}};
  for (const auto& steps : order) {
    RankWriter rank;
    for (const Step step : steps) {
      if (step == kW) {
        rank.run(rank.weight_gradient());
      } else {
        rank.run(is_forward(step) ? rank.forward(chunk_of(step)) : rank.input_gradient(chunk_of(step)));
      }
    }
    schedule.ranks.push_back(rank.take());
  }
  return schedule;
}

double makespan(const StepOrder& order, int microbatches, const PassCosts& costs) {
  const int p = static_cast<int>(order.size());
  ListScheduler state(p, microbatches, costs.p2p);
  state.follow(order, costs, [](int, size_t, double) { return true; });
  double latest = 0;
  for (int rank = 0; rank < p; ++rank) latest = std::max(latest, state.free(rank));
  return latest;
}

ListScheduler::ListScheduler(int p, int m, double p2p)
    : PipelineState(Placement::v(p), m, p2p), p_(p), ranks_(p) {
  for (int rank = 0; rank < p; ++rank)
    for (const Step step : kSteps) ranks_[rank].first[step] = PipelineState::input(v_hop(p, rank, step), 0);
}

void ListScheduler::restart(double p2p) {
  PipelineState::restart(p2p);
  for (Rank& rank : ranks_) rank = {.first = rank.first};
}

}  // namespace stp
