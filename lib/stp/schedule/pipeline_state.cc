#include "stp/schedule/pipeline_state.h"

namespace stp {

PipelineState::PipelineState(const Placement& placement, int microbatches, double p2p, int more)
    : stride_(static_cast<size_t>(microbatches) + 1), begins_(more == 0), ranks_(placement.ranks()) {
  const int depth = placement.depth();
  for (int first = 0; first < placement.stages(); first += depth) {
    for (int hop = 0; hop < 2 * depth; ++hop)
      rank_of_hop_.push_back(placement.rank_of(first + stage_of_hop(depth, hop)));
    rank_of_hop_.push_back(kNoRank);
  }
  arrivals_.resize((rank_of_hop_.size() + more) * stride_);
  restart(p2p);
}

void PipelineState::restart(double p2p) {
  p2p_ = p2p;
  by_time_ = false;
  std::ranges::fill(ranks_, Rank{});
  std::ranges::fill(arrivals_, kNever);
  for (size_t hop = 0; begins_ && hop < rank_of_hop_.size(); ++hop)
    if (hop == 0 || rank_of_hop_[hop - 1] == kNoRank)
      std::fill_n(arrivals_.begin() + static_cast<std::ptrdiff_t>(hop * stride_), stride_ - 1, 0);
}

void PipelineState::wake(int rank, double time) {
  if (ranks_[rank].wake <= time) return;
  ranks_[rank].wake = time;
  events_.emplace(time, rank);
}

}  // namespace stp
