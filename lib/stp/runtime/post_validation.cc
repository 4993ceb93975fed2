// Post-validation (docs/program-options.md): each rank takes its optimizer step at once, unclipped.
// Early in the next step the norm of all gradients is known. If the norm does not allow that step, all ranks
// undo it.
#include <cmath>

#include "stp/runtime/executor.h"

namespace stp {
namespace {

Tensor make_number(RankState& rank, Stream& stream, MemoryKind kind) {
  return rank.device.allocate(stream, kind, DType::f64, 1, 1);
}

void add_prefix(RankState& rank, Stream& stream) {
  if (!rank.prefix) return;
  rank.device.kernels().issue(stream, kernel::AddRows{.in = rank.prefix, .first = 0, .out = rank.norm});
  rank.device.release(stream, rank.prefix);
}

// Releases the tensors that an abandoned step has left.
void release_all(RankState& rank, std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors)
    if (tensor && tensor.memory->held) rank.device.release(*rank.compute, tensor);
}

}  // namespace

void Executor::issue_gradient_norm(OpId id) {
  const int pp = plan_.program.stream_of(id).rank;
  for (TensorGroup& group : tensor_groups_[pp]) {
    for (RankState* rank : group.ranks) begin(*rank, *rank->compute, id);
    add_gradient_norms(group);
  }
  for (RankGroup& group : model_groups_) {
    if (group.ranks.front()->place.pp != pp) continue;
    sum(group, &RankState::compute, [](const RankState& rank) { return rank.norm; });
  }
  for (RankState* rank : ranks_of(pp)) end(*rank, *rank->compute, id);
}

void Executor::issue_norm_transfer(OpId id) {
  const bool prefix = plan_.program.ops[id].kind == OpKind::norm_prefix;
  on_links(id, [&](Link& link, Stream& stream) {
    std::vector<Part> parts;
    if (RankState* sender = link.sender) {
      if (prefix) add_prefix(*sender, stream);
      if (!prefix && !sender->total) {  // there is no step before
        sender->total = make_number(*sender, stream, MemoryKind::working);
        sender->device.kernels().issue(stream, kernel::Fill{.tensor = sender->total, .value = 0});
      }
      parts.push_back({&stream, prefix ? sender->norm : sender->total, {}});
    }
    if (RankState* receiver = link.receiver) {
      Tensor& received = prefix ? receiver->prefix : receiver->total;
      received = make_number(*receiver, stream, MemoryKind::communication);
      parts.push_back({&stream, {}, received});
    }
    link.group->transfer(parts);
    if (prefix && link.sender != nullptr) link.sender->device.release(stream, link.sender->norm);
  });
}

void Executor::issue_optimizer(OpId id) {
  const int pp = plan_.program.stream_of(id).rank;
  for (RankState* rank : ranks_of(pp)) {
    begin(*rank, *rank->compute, id);
    if (pp + 1 == grid_.pp) {
      add_prefix(*rank, *rank->compute);
      rank->total = std::exchange(rank->norm, {});
    }
    for (const ChunkState& chunk : rank->chunks)
      for (const BucketState& bucket : chunk.buckets)
        for (const auto& [changed, copy] : bucket.undo)
          rank->device.kernels().issue(*rank->compute, kernel::Copy{.from = changed, .to = copy});
    take_step(*rank, {});
    end(*rank, *rank->compute, id);
  }
}

void Executor::settle() {
  if (!unchecked_) return;
  for (const OpId op : plan_.totals) issue(op);
  last_step_stands();
  release_totals();
  for (const auto& rank : ranks_) rank->device.synchronize();
}

void Executor::wait_for_totals() {
  for (const auto& rank : ranks_)
    for (const OpId op : plan_.totals)
      if (is_own(*rank, op) || plan_.program.stream_of(op).peer == rank->place.pp)
        rank->compute->wait(events(*rank, op).done);
}

// All ranks get the same total, so all processes make the same decision.
double Executor::total_of_last_step() {
  wait_for_totals();
  RankState& any = *ranks_.front();
  return download_doubles(any.device, *any.compute, any.total)[0];
}

// Undoes the last step if the norm requires another step, and takes that step. Throws NotFinite if there is
// none.
bool Executor::last_step_stands() {
  if (!std::exchange(unchecked_, false) || ranks_.empty()) return true;
  const double total = total_of_last_step();
  if (std::sqrt(total) <= training_.clip_norm) return true;
  for (const auto& rank : ranks_) rank->device.synchronize();  // forwards read the weights
  for (const auto& rank : ranks_)
    for (const ChunkState& chunk : rank->chunks)
      for (const BucketState& bucket : chunk.buckets)
        for (const auto& [changed, copy] : bucket.undo)
          rank->device.kernels().issue(*rank->compute, kernel::Copy{.from = copy, .to = changed});
  if (!std::isfinite(total)) {
    --updates_;
    throw_away_forwards();
    release_totals();
    throw NotFinite("the gradients' norm is not finite; the optimizer's step was undone");
  }
  for (const auto& rank : ranks_) take_step(*rank, rank->total);
  return false;
}

void Executor::throw_away_forwards() {
  for (const auto& rank : ranks_) {
    for (const auto& [value, tensor] : rank->values) release_all(*rank, {tensor});
    for (const auto& [unit, saved] : rank->saved) release_all(*rank, saved.all());
    for (const auto& [offload, tensors] : rank->leaving) release_all(*rank, tensors);
    for (const auto& [activation, tensors] : rank->on_host) release_all(*rank, tensors);
    release_all(*rank, rank->tokens);
    release_all(*rank, rank->targets);
    release_all(*rank, rank->patches);
    release_all(*rank, {rank->loss});
    rank->values.clear();
    rank->saved.clear();
    rank->leaving.clear();
    rank->on_host.clear();
    rank->tokens.clear();
    rank->targets.clear();
    rank->loss = {};
    if (rank->place.pp + 1 < grid_.pp) release_all(*rank, {std::exchange(rank->total, {})});
    rank->device.synchronize();
  }
}

void Executor::release_totals() {
  wait_for_totals();
  for (const auto& rank : ranks_)
    if (rank->total) rank->device.release(*rank->compute, rank->total);
}

}  // namespace stp
