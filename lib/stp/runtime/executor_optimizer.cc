// The ops on gradients and weights: their reductions over replicas, and the optimizer.
#include "stp/runtime/executor.h"

#include <algorithm>
#include <utility>

namespace stp {
namespace {

// This replica's share of the gradients of the rank's table of the embedding or, tied, of the head; empty if
// the rank does not hold the unit.
Tensor tied_gradient(const RankState& rank, Unit unit) {
  for (const ChunkState& chunk : rank.chunks)
    if (!chunk.parameters[static_cast<size_t>(unit)].empty()) {
      const BucketState& bucket = chunk.buckets[with_role(chunk.of(unit, 0), Role::first).bucket];
      return bucket.share_of(bucket.gradients);
    }
  return {};
}

}  // namespace

void Executor::issue_embedding_reduce(OpId id) {
  for (RankGroup& group : tied_groups_)
    for (RankState* rank : group.ranks)
      if (is_own(*rank, id)) begin(*rank, *rank->dp, id);
  if (!embedding_reduce_) {
    embedding_reduce_ = id;
    return;
  }
  for (RankGroup& group : tied_groups_) {
    sum(group, &RankState::dp, [](const RankState& rank) {
      const Tensor gradient = tied_gradient(rank, Unit::embedding);
      return gradient ? gradient : tied_gradient(rank, Unit::head);
    });
    for (RankState* rank : group.ranks) end(*rank, *rank->dp, is_own(*rank, id) ? id : *embedding_reduce_);
  }
  embedding_reduce_.reset();
}

void Executor::issue_of_replicas(OpId id) {
  const Op& op = plan_.program.ops[id];
  const int stage = plan_.program.stream_of(id).rank;
  for (RankState* rank : ranks_of(stage)) begin(*rank, *rank->dp, id);
  for_each_bucket(stage, op.chunk, [&](const RankGroup& group, size_t bucket) {
    if (group.ranks.front()->chunks[op.chunk].buckets[bucket].reduced_with == op.step)
      reduce_bucket(group, op, bucket);
  });
  for (RankState* rank : ranks_of(stage)) end(*rank, *rank->dp, id);
}

void Executor::sum(const RankGroup& group, std::unique_ptr<Stream> RankState::*on,
                   const std::function<Tensor(const RankState&)>& tensor_of) {
  std::vector<Part> parts;
  for (const RankState* rank : group.ranks) {
    const Tensor tensor = tensor_of(*rank);
    parts.push_back({(rank->*on).get(), tensor, tensor});
  }
  group.group->all_reduce(Reduce::sum, parts);
}

void Executor::reduce_bucket(const RankGroup& group, const Op& op, size_t index) {
  const auto bucket_of = [&](const RankState& rank) -> const BucketState& {
    return rank.chunks[op.chunk].buckets[index];
  };
  if (op.kind == OpKind::gradient_reduce)
    return sum(group, &RankState::dp, [&](const RankState& rank) { return bucket_of(rank).gradients; });
  const bool gathers = op.kind == OpKind::weight_gather;
  std::vector<Part> parts;
  for (const RankState* rank : group.ranks) {
    const BucketState& bucket = bucket_of(*rank);
    const Tensor& all = gathers ? bucket.weights : bucket.gradients;
    const Tensor own = bucket.share_of(all), shares = all.part(0, group.group->size(), own.columns);
    parts.push_back({rank->dp.get(), gathers ? own : shares, gathers ? shares : own});
  }
  if (gathers)
    group.group->all_gather(parts);
  else
    group.group->reduce_scatter(parts);
}

// The ops of two ranks are one sum: it is issued with the later of those that this process drives.
void Executor::issue_pipeline_reduce(OpId id) {
  const int pp = plan_.program.stream_of(id).rank;
  // Chunk `chunk` of the first half's rank, or its copy.
  const auto chunk_here = [&](const RankState& rank, int chunk) -> const ChunkState& {
    return rank.chunks[2 * rank.place.pp < grid_.pp ? chunk : 1 - chunk];
  };
  for (RankGroup& group : pipeline_groups_) {
    const auto is_of_op = [&](const RankState* rank) { return rank->place.pp == pp; };
    const auto own = std::ranges::find_if(group.ranks, is_of_op);
    if (own == group.ranks.end()) continue;
    begin(**own, *(*own)->dp, id);
    (*own)->pipeline_reduce = id;
    if (!std::ranges::all_of(group.ranks,
                             [](const RankState* rank) { return rank->pipeline_reduce.has_value(); }))
      continue;
    for (int chunk = 0; chunk < plan_.program.schedule.chunks(); ++chunk)
      for (size_t bucket = 0; bucket < chunk_here(*group.ranks.front(), chunk).buckets.size(); ++bucket)
        sum(group, &RankState::dp, [&](const RankState& rank) {
          const BucketState& state = chunk_here(rank, chunk).buckets[bucket];
          return state.share_of(state.gradients);
        });
    for (RankState* rank : group.ranks) end(*rank, *rank->dp, *std::exchange(rank->pipeline_reduce, {}));
  }
}

// The optimizer ops of all ranks: the gradients' norm is a sum over all of them. They start behind that sum,
// because the wait for the slowest rank is no compute.
void Executor::issue_optimizers(const std::vector<OpId>& ids) {
  for (const OpId id : ids)
    for (RankState* rank : ranks_of(plan_.program.stream_of(id).rank)) {
      wait_for_needed(*rank, *rank->compute, id);
      sum_tied_gradients(*rank);
    }
  sum_shared_gradients();
  for (const OpId id : ids)
    for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank]) add_gradient_norms(group);
  for (const RankGroup& group : model_groups_)
    sum(group, &RankState::compute, [](const RankState& rank) { return rank.norm; });
  for (const OpId id : ids)
    for (RankState* rank : ranks_of(plan_.program.stream_of(id).rank)) {
      issuing_ = rank;
      start(*rank, *rank->compute, id);
      rank->device.kernels().issue(*rank->compute,
                                   kernel::CheckFinite{.tensor = rank->norm, .what = "the gradients' norm"});
      take_step(*rank, rank->norm);
      rank->device.release(*rank->compute, rank->norm);
      end(*rank, *rank->compute, id);
    }
}

// Of a rank that holds both the embedding and a tied head.
void Executor::sum_tied_gradients(RankState& rank) const {
  const Tensor table = tied_gradient(rank, Unit::embedding), head = tied_gradient(rank, Unit::head);
  if (!training_.model.tied() || !table || !head) return;
  Kernels& kernels = rank.device.kernels();
  kernels.issue(*rank.compute, kernel::AddRows{.in = head, .first = 0, .out = table});
  kernels.issue(*rank.compute, kernel::Copy{.from = table, .to = head});
}

void Executor::take_step(RankState& rank, const Tensor& total) const {
  AdamW options = training_.optimizer;
  options.step = updates_;
  for (const ChunkState& chunk : rank.chunks)
    for (const BucketState& bucket : chunk.buckets)
      rank.device.kernels().issue(*rank.compute, kernel::AdamW{.options = options,
                                                               .max_norm = training_.clip_norm,
                                                               .total = total,
                                                               .gradient = bucket.share_of(bucket.gradients),
                                                               .first_moment = bucket.first_moment,
                                                               .second_moment = bucket.second_moment,
                                                               .master = bucket.master,
                                                               .weight = bucket.share_of(bucket.weights)});
}

// If tensor parallelism does not divide a parameter, each rank of the group has a summand of its gradient.
void Executor::add_gradient_norms(TensorGroup& group) const {
  for (RankState* rank : group.ranks) {
    rank->norm = rank->device.allocate(*rank->compute, MemoryKind::working, DType::f64, 1, 1);
    rank->device.kernels().issue(*rank->compute, kernel::Fill{.tensor = rank->norm, .value = 0});
  }
  const double once = 1.0 / plan_.program.schedule.placement.pipelines();  // each has all gradients
  const auto add_squares = [](RankState& rank, double factor, const Tensor& gradients) {
    if (gradients.elements() > 0)
      rank.device.kernels().issue(
          *rank.compute, kernel::AddSumOfSquares{.factor = factor, .x = gradients, .total = rank.norm});
  };
  const std::vector<ChunkState>& chunks = group.ranks.front()->chunks;  // the same on all ranks
  const auto add_bucket = [&](size_t chunk, size_t index) {
    const Axes alike = chunks[chunk].buckets[index].replicas.without(kReplicas);  // among those that add up
    const double own = once / (plan_.program.strategy.zero ? 1 : grid_.along(alike).size());
    std::vector<Part> partial;  // of each rank's share: the same part on all
    for (RankState* rank : group.ranks) {
      const BucketState& bucket = rank->chunks[chunk].buckets[index];
      const Tensor share = bucket.share_of(bucket.gradients);
      const int64_t whole = std::clamp<int64_t>(bucket.partial_begin - bucket.share_begin, 0, share.columns);
      add_squares(*rank, own, share.part(0, 1, whole));
      const Tensor rest = share.part(whole, 1, share.columns - whole);
      if (rest.elements() > 0) partial.push_back({rank->compute.get(), rest, rest});
    }
    if (partial.empty()) return;
    group.inside->all_reduce(Reduce::sum, partial);
    for (size_t i = 0; i < partial.size(); ++i) add_squares(*group.ranks[i], own / grid_.tp, partial[i].in);
  };
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    for (size_t index = 0; index < chunks[chunk].buckets.size(); ++index) add_bucket(chunk, index);
  for (RankState* rank : group.ranks)  // sums over pipeline ranks, which all have, count once
    for (const Tensor& gradient :
         shared_groups_.empty() || rank->place.pp == 0 ? std::vector<Tensor>{} : shared_gradients(*rank))
      add_squares(*rank, -once / grid_.tp, gradient);
  if (!training_.model.tied()) return;
  for (RankState* rank : group.ranks)  // the head's gradient is the embedding's, which is in the sum already
    if (const Tensor head = tied_gradient(*rank, Unit::head)) add_squares(*rank, -1, head);
}

}  // namespace stp
