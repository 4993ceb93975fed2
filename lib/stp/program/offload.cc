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

OffloadOps::OffloadOps(const CopyRequest& costs, ProgramBuilder& builder) : b_(builder) {
  const Strategy& strategy = b_.program.strategy;
  if (strategy.offload == 0 || strategy.offload_chunks == 0) return;
  CopyRequest request = costs;
  request.chunks = strategy.offload_chunks;
  request.share = strategy.offload_share;
  plan_ = plan_copies(b_.program.schedule, request);
  for (const auto& copies : plan_) planned_.push_back(b_.new_outputs(copies.size()));
}

bool OffloadOps::has_layers(int chunk) const {
  return b_.program.layers_per_stage[b_.program.schedule.placement.stage(b_.rank, chunk)] > 0;
}

void OffloadOps::begin_rank() {
  to_offload_.clear();
  to_reload_.clear();
  computed_.clear();
  copies_.clear();
  copying_.clear();
  next_ = 0;
  empty_.fill(kNothing);
  before_.clear();
  const Program& program = b_.program;
  if (program.strategy.offload == 0 || !plan_.empty() || !has_layers(0)) return;
  to_reload_ = offloaded_activations(program.schedule.ranks[b_.rank]);
  std::reverse(to_reload_.begin(), to_reload_.end());
  for (const OffloadedActivation& each : to_reload_) to_offload_[each.backward.microbatch] = each;
}

void OffloadOps::begin_block() {
  awaited_.clear();
  if (plan_.empty()) return;
  before_.push_back({b_.latest.rank_compute, b_.latest.rank_collective});
  const std::vector<PlannedCopy>& copies = plan_[b_.rank];
  for (; next_ < copies.size() && copies[next_].block == b_.block; ++next_)
    add_planned(copies[next_], planned_[b_.rank] + static_cast<Ref>(next_));
}

// A chunk without layers has nothing to copy: who waits for its copy waits for the one before.
void OffloadOps::add_planned(const PlannedCopy& copy, Ref here) {
  Ref& own = empty_[copy.back() ? 1 : 0];
  const Ref before =
      copy.neighbour < 0 ? own : planned_[copy.neighbour] + static_cast<Ref>(copy.neighbour_copy);
  own = has_layers(copy.action.chunk) ? kNothing : here;
  if (own != kNothing) return b_.set_output(here, {before, kNothing});
  b_.begin_op();
  b_.depend(before);
  if (copy.back()) {
    for (const Ref each : before_[copy.bound]) b_.depend(each);
    const OpId reload = b_.add_of_chunk(OpKind::reload, copy.action, b_.stream(StreamKind::d2h));
    b_.program.ops[reload].block = copy.bound;
    copies_[activation(copy.action)] = reload;
  } else {
    b_.depend(computed_.at(activation(copy.action)));
    add_offload(copy.action, copy.bound);
  }
  b_.set_output(here, {copies_.at(activation(copy.action)), kNothing});
}

void OffloadOps::add_offload(const Action& action, int freed_at) {
  const OpId offload = b_.add_of_chunk(OpKind::offload, action, b_.stream(StreamKind::d2h));
  copies_[activation(action)] = offload;
  copying_.push_back({freed_at, offload});
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
    Ref& copy = copies_.at(activation(backward));
    b_.begin_op();
    b_.depend(copy);
    b_.depend(b_.latest.rank_compute);
    b_.depend(b_.latest.rank_collective);
    for (const OpId offload : awaited_) b_.depend(offload);
    copy = b_.add_of_chunk(OpKind::reload, backward, b_.stream(StreamKind::h2d));
  }
}

void OffloadOps::end_action(const Action& action, Ref computed) {
  if (action.pass != Pass::F) return;
  if (!plan_.empty()) computed_[activation(action)] = computed;
  if (action.chunk != 0 || !to_offload_.contains(action.microbatch)) return;
  b_.begin_op();
  b_.depend(computed);
  add_offload(action, to_offload_.at(action.microbatch).freed_at());
}

Ref OffloadOps::reload_for(const Action& action) const {
  const Activation key = activation(action);
  return is_backward(action.pass) && copies_.contains(key) ? copies_.at(key) : kNothing;
}

}  // namespace stp
