#include "stp/schedule/pipeline_state.h"

namespace stp {

PipelineState::PipelineState(const Placement& placement, int microbatches, double p2p, int more)
    : stride_(static_cast<size_t>(microbatches) + 1), begins_(more == 0), ranks_(placement.ranks()) {
  const int stages = placement.stages();
  for (int hop = 0; hop < 2 * stages; ++hop)
    rank_of_hop_.push_back(placement.rank_of(stage_of_hop(stages, hop)));
  arrivals_.resize((rank_of_hop_.size() + more) * stride_);
  rank_of_hop_.push_back(kNoRank);
  restart(p2p);
}

void PipelineState::restart(double p2p) {
  p2p_ = p2p;
  by_time_ = false;
  std::ranges::fill(ranks_, Rank{});
  std::ranges::fill(arrivals_, kNever);
  if (begins_) std::fill_n(arrivals_.begin(), stride_ - 1, 0);
}

void PipelineState::wake(int rank, double time) {
  if (ranks_[rank].wake <= time) return;
  ranks_[rank].wake = time;
  events_.emplace(time, rank);
}

}  // namespace stp
