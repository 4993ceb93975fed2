// A step: its data, all its ops in the issue order, and its end.
#include "stp/runtime/executor.h"

#include <stdexcept>
#include <utility>

namespace stp {
namespace {

// With a vision encoder: uploads the patches of a replica's samples, by microbatch.
void upload_patches(RankState& rank, const Training& training, std::span<const TokenSample> samples) {
  rank.patches.clear();
  const size_t of_sample = static_cast<size_t>(training.vision_tokens) * kPatchElements;
  for (size_t first = 0; of_sample > 0 && first < samples.size(); first += training.microbatch_size) {
    std::vector<double> values;
    for (const TokenSample& sample : samples.subspan(first, training.microbatch_size)) {
      if (sample.patches.size() != of_sample)
        throw std::logic_error("a sample has " + std::to_string(sample.patches.size()) +
                               " values of patches, not " + std::to_string(of_sample));
      values.insert(values.end(), sample.patches.begin(), sample.patches.end());
    }
    rank.patches.push_back(rank.device.allocate(*rank.compute, MemoryKind::data, training.type,
                                                int64_t{training.microbatch_size} * training.vision_tokens,
                                                kPatchElements));
    upload_doubles(rank.device, *rank.compute, rank.patches.back(), values);
  }
}

// The positions of a microbatch's tokens in their sequences.
Tensor upload_positions(const RankState& rank) {
  const UnitContext& context = *rank.context;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < context.tokens(); ++i)
    positions.push_back(static_cast<int32_t>(
        position_of(context.cp(), rank.place.cp, context.own_seq(), i % context.own_seq())));
  Tensor tensor = rank.device.allocate(*rank.compute, MemoryKind::data, DType::i32, context.tokens(), 1);
  rank.device.upload(*rank.compute, tensor, std::as_bytes(std::span(positions)));
  return tensor;
}

}  // namespace

void Executor::issue_step(std::span<const TokenSample> samples) {
  const bool post_validation = plan_.program.strategy.post_validation;
  try {
    begin_step(samples);
    if (post_validation) {
      issue(0, plan_.issued_before_check);
      if (!last_step_stands()) {
        throw_away_forwards();
        begin_step(samples);
        issue(0, plan_.issued_before_check);
      }
      release_totals();
      for (const auto& rank : ranks_) {  // the last step no longer needs them
        clear_gradients(*rank);
        others_wait_for_compute(*rank);
      }
    }
    ++updates_;
    issue(plan_.issued_before_check, plan_.order.ops.size());
    if (!post_validation) issue_optimizers(std::exchange(optimizers_, {}));
    unchecked_ = post_validation;
  } catch (const Cancelled&) {
    throw;
  } catch (const NotFinite&) {
    throw;
  } catch (const std::exception& error) {
    // Memory may be lacking on another rank of the group than the one whose work was issued last.
    if (const auto* const lack = dynamic_cast<const OutOfMemory*>(&error))
      for (const auto& rank : ranks_)
        if (&rank->device.memory() == lack->memory) issuing_ = rank.get();
    throw std::runtime_error("rank " + std::to_string(issuing_->world_rank) + ", " +
                             (issuing_op_ ? to_string(plan_.program.stream_of(*issuing_op_).kind) + ", " +
                                                describe_op(plan_.program, *issuing_op_)
                                          : "begin of the step") +
                             ": " + error.what());
  }
}

void Executor::issue(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const OpId op = plan_.order.ops[i];
    issuing_op_ = op;
    if (plan_.program.ops[op].kind == OpKind::optimizer && !plan_.program.strategy.post_validation)
      optimizers_.push_back(op);  // each the last op of its rank
    else
      issue(op);
  }
}

void Executor::clear_gradients(RankState& rank) const {
  for (const ChunkState& chunk : rank.chunks)
    for (const BucketState& bucket : chunk.buckets)
      rank.device.kernels().issue(*rank.compute, kernel::Fill{.tensor = bucket.gradients, .value = 0});
}

// With sequence parallelism, gradients of norm gains are added to on the tp stream. With ZeRO-1, the last
// step's weights are gathered on the dp stream.
void Executor::others_wait_for_compute(RankState& rank) const {
  const EventRef begun = rank.compute->fence();
  rank.collectives().wait(begun);
  if (rank.dp) rank.dp->wait(begun);
}

void Executor::begin_step(std::span<const TokenSample> samples) {
  issuing_op_.reset();
  const Schedule& schedule = plan_.program.schedule;
  const size_t per_replica = samples.size() / grid_.dp;
  for (const auto& rank : ranks_) {
    issuing_ = rank.get();
    Device& device = rank->device;
    const UnitContext& context = *rank->context;
    rank->ops.assign(plan_.program.rank_begin[rank->place.pp + 1] - plan_.program.rank_begin[rank->place.pp],
                     {});
    rank->arrivals.clear();
    if (!plan_.program.strategy.post_validation) clear_gradients(*rank);

    const auto own = samples.subspan(rank->place.dp * per_replica, per_replica);
    // `images`: the number of a sample's tokens that image tokens replace.
    // Each pipeline has its own part of the samples.
    const auto upload = [&](std::vector<Tensor>& tensors, auto member, int images, int pipeline) {
      const int first = pipeline * schedule.microbatches;
      for (int microbatch = first; microbatch < first + schedule.microbatches; ++microbatch) {
        std::vector<int32_t> flat;
        for (int i = 0; i < training_.microbatch_size; ++i) {
          const auto& row = own[static_cast<size_t>(microbatch) * training_.microbatch_size + i].*member;
          for (int j = 0; j < context.own_seq(); ++j)
            flat.push_back(j < images ? -1
                                      : row[position_of(context.cp(), rank->place.cp, context.own_seq(), j)]);
        }
        tensors.push_back(device.allocate(*rank->compute, MemoryKind::data, DType::i32, context.tokens(), 1));
        device.upload(*rank->compute, tensors.back(), std::as_bytes(std::span(flat)));
      }
    };
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      const int stage = schedule.placement.stage(rank->place.pp, chunk);
      const int pipeline = stage / schedule.placement.depth();
      if (plan_.program.has_embedding(stage)) {
        upload(rank->tokens, &TokenSample::tokens, training_.image_tokens(), pipeline);
        upload_patches(*rank, training_, own);
        if (training_.model.positions > 0 && !rank->positions) rank->positions = upload_positions(*rank);
      }
      if (!plan_.program.has_head(stage)) continue;
      upload(rank->targets, &TokenSample::targets, 0, pipeline);
      rank->loss = device.allocate(*rank->compute, MemoryKind::data, statistics_type(training_.type), 1, 1);
      device.kernels().issue(*rank->compute, kernel::Fill{.tensor = rank->loss, .value = 0});
    }
  }
  if (world_.group) synchronize_ranks();
  for (const auto& rank : ranks_) others_wait_for_compute(*rank);
  for (auto& links : links_)
    for (Link& link : links) link.taken.clear();
}

// No member completes a sum before all members have reached it.
void Executor::synchronize_ranks() {
  std::vector<Part> parts;
  for (RankState* rank : world_.ranks) {
    Tensor flag = rank->device.allocate(*rank->compute, MemoryKind::working, DType::f32, 1, 1);
    rank->device.kernels().issue(*rank->compute, kernel::Fill{.tensor = flag, .value = 0});
    parts.push_back({rank->compute.get(), flag, flag});
  }
  world_.group->all_reduce(Reduce::sum, parts);
  common_start_ = world_.ranks.front()->compute->record();
  for (size_t i = 0; i < parts.size(); ++i)
    world_.ranks[i]->device.release(*world_.ranks[i]->compute, parts[i].in);
}

void Executor::finish_step() {
  for (const auto& rank : ranks_) {
    if (rank->positions) rank->device.release(*rank->compute, rank->positions);
    if (rank->loss) {
      // With the vocabulary on all ranks, each has the whole loss.
      const bool counts = shared_groups_.empty() || rank->place.pp == 0;
      rank->loss_value = counts ? download_doubles(rank->device, *rank->compute, rank->loss)[0] : 0;
      rank->device.release(*rank->compute, rank->loss);
    }
    for (auto* tensors : {&rank->tokens, &rank->targets}) {
      for (Tensor& tensor : *tensors) rank->device.release(*rank->compute, tensor);
      tensors->clear();
    }
  }
  for (const auto& rank : ranks_) rank->device.synchronize();
}

std::vector<OpTime> Executor::op_times(const RankState& rank) const {
  std::vector<OpTime> times;
  for (const OpEvents& op : rank.ops) times.push_back({op.started->seconds(), op.done->seconds()});
  return times;
}

}  // namespace stp
