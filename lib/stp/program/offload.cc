#include "stp/program/offload.h"

#include <algorithm>

namespace stp {

std::vector<OffloadedActivation> offloaded_activations(std::span<const Block> blocks) {
  std::vector<OffloadedActivation> found;
  std::map<int, int> forwards;  // by microbatch: the block
  for (int block = 0; block < static_cast<int>(blocks.size()); ++block)
    for (const Action& action : blocks[block].actions()) {
      if (action.chunk != 0) continue;
      if (action.pass == Pass::F) forwards[action.microbatch] = block;
      if (action.pass != Pass::I && action.pass != Pass::B) continue;
      const OffloadedActivation each{action, forwards.at(action.microbatch), block};
      if (each.freed_at() < each.reloaded_at()) found.push_back(each);
    }
  return found;
}

void OffloadOps::begin_rank() {
  to_offload_.clear();
  to_reload_.clear();
  copies_.clear();
  copying_.clear();
  const Program& program = b_.program;
  if (program.strategy.offload == 0 ||
      program.layers_per_stage[program.schedule.placement.stage(b_.rank, 0)] == 0)
    return;
  to_reload_ = offloaded_activations(program.schedule.ranks[b_.rank]);
  std::reverse(to_reload_.begin(), to_reload_.end());
  for (const OffloadedActivation& each : to_reload_) to_offload_[each.backward.microbatch] = each;
}

void OffloadOps::wait_for_offloads() {
  std::erase_if(copying_, [&](const Copying& each) {
    if (each.freed_at > b_.block) return false;
    b_.depend(each.offload);
    awaited_.push_back(each.offload);
    return true;
  });
}

void OffloadOps::add_reloads() {
  for (; !to_reload_.empty() && to_reload_.back().reloaded_at() == b_.block; to_reload_.pop_back()) {
    const Action& backward = to_reload_.back().backward;
    Ref& copy = copies_.at(backward.microbatch);
    b_.begin_op();
    b_.depend(copy);
    b_.depend(b_.latest.rank_compute);
    b_.depend(b_.latest.rank_collective);
    for (const OpId offload : awaited_) b_.depend(offload);
    copy = b_.add_of_chunk(OpKind::reload, backward, StreamKind::h2d);
  }
}

void OffloadOps::add_offload(const Action& action, Ref computed) {
  if (action.pass != Pass::F || action.chunk != 0 || !to_offload_.contains(action.microbatch)) return;
  b_.begin_op();
  b_.depend(computed);
  const OpId offload = b_.add_of_chunk(OpKind::offload, action, StreamKind::d2h);
  copies_[action.microbatch] = offload;
  copying_.push_back({to_offload_.at(action.microbatch).freed_at(), offload});
}

Ref OffloadOps::reload_for(const Action& action) const {
  if (action.chunk != 0 || !is_backward(action.pass)) return kNothing;
  return copies_.contains(action.microbatch) ? copies_.at(action.microbatch) : kNothing;
}

}  // namespace stp
