#include "stp/runtime/rank_executor.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "stp/emulation/paced_communicator.h"
#include "stp/program/communication.h"

namespace stp {

ExecutionPlan make_plan(Program program) {
  ExecutionPlan plan{std::move(program), 1, {}};
  const Program& p = plan.program;
  communication_order(p);  // throws if the program itself has a circle
  plan.receives_ahead = receives_ahead(p);
  int layer = 0;
  for (const int layers : p.layers_per_stage) {
    plan.first_layer.push_back(layer);
    layer += layers;
  }
  return plan;
}

RankExecutor::RankExecutor(Backend& backend, const ExecutionPlan& plan, const Training& training,
                           int world_rank)
    : plan_(plan),
      training_(training),
      device_(backend.device(world_rank)),
      world_rank_(world_rank),
      several_processes_(backend.processes() > 1),
      place_(training.grid.place(world_rank)),
      begin_(plan.program.rank_begin[place_.pp]),
      end_(plan.program.rank_begin[place_.pp + 1]) {
  compute_ = device_.make_stream("compute", StreamPriority::compute);
  tp_ = device_.make_stream("tp", StreamPriority::communication);
  make_groups(backend);
  context_ = std::make_unique<UnitContext>(UnitContext{device_, *compute_, training_, *inline_group_});
  const Placement& placement = plan.program.schedule.placement;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const int stage = placement.stage(place_.pp, chunk);
    chunks_.push_back(make_chunk(
        device_, *compute_, training_,
        {plan.first_layer[stage], plan.program.layers_per_stage[stage], stage == 0, last_stage(stage)},
        place_.tp));
  }
}

RankExecutor::~RankExecutor() = default;

// All ranks ask for their groups in the same order.
void RankExecutor::make_groups(Backend& backend) {
  const RankGrid& grid = training_.grid;
  const auto group = [&](const std::string& name, const std::vector<int>& members,
                         GroupUse use = GroupUse::collectives) {
    const auto self = std::find(members.begin(), members.end(), world_rank_);
    return backend.communicator(name, members, static_cast<int>(self - members.begin()), use);
  };
  tp_group_ = group("tp", grid.tensor_group(world_rank_));
  inline_group_ = group("tp inside ops", grid.tensor_group(world_rank_));
  dp_group_ = group("dp", grid.data_group(world_rank_));
  model_group_ = group("model", grid.model_group(world_rank_));
  const Program& program = plan_.program;
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
    const auto& info = program.streams[stream];
    if (info.kind == StreamKind::dp && info.rank == place_.pp)
      dp_ = device_.make_stream("dp", StreamPriority::communication);
    if (info.kind != StreamKind::p2p || (info.rank != place_.pp && info.peer != place_.pp)) continue;
    const auto at = [&](int pp) { return grid.rank({place_.tp, place_.cp, place_.dp, pp}); };
    auto pair = group("p2p", {at(info.rank), at(info.peer)}, GroupUse::transfers);
    if (info.rank == place_.pp) {
      sends_[stream] = {
          device_.make_stream("send to rank " + std::to_string(info.peer), StreamPriority::communication),
          std::move(pair)};
    } else {
      Link& link = links_[stream];
      link.stream = device_.make_stream("receive from rank " + std::to_string(info.rank),
                                        StreamPriority::communication);
      link.group = std::move(pair);
    }
  }
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (program.ops[op].kind == OpKind::transfer)
      if (const auto link = links_.find(program.ops[op].stream); link != links_.end())
        link->second.transfers.push_back(op);
}

int64_t RankExecutor::sent_bytes() const {
  return std::accumulate(sends_.begin(), sends_.end(), int64_t{0}, [](int64_t sum, const auto& entry) {
    return sum + entry.second.group->traffic().sent_bytes;
  });
}

std::map<std::string, PacedUse> RankExecutor::take_paced_use() {
  std::map<std::string, PacedUse> uses;
  const auto take = [&](const std::string& kind, Communicator& group) {
    auto* const paced = dynamic_cast<PacedCommunicator*>(&group);
    if (paced != nullptr && paced->size() > 1) uses[kind] += paced->take_paced_use();
  };
  take("tp", *tp_group_);
  take("tp", *inline_group_);
  take("dp", *dp_group_);
  take("model", *model_group_);
  for (const auto& [stream, link] : sends_) take("pp", *link.group);
  for (const auto& [stream, link] : links_) take("pp", *link.group);
  return uses;
}

Stream& RankExecutor::stream_of(const Op& op) {
  const auto& info = plan_.program.streams[op.stream];
  switch (info.kind) {
    case StreamKind::compute:
      return *compute_;
    case StreamKind::tp:
      return *tp_;
    case StreamKind::dp:
      return *dp_;
    case StreamKind::p2p:
      return *sends_.at(op.stream).stream;
  }
  throw std::logic_error("a stream of no kind");
}

void RankExecutor::issue_step(std::span<const TokenSample> samples, int step) {
  step_ = step;
  begin_step(samples);
  const int blocks = static_cast<int>(plan_.program.schedule.ranks[place_.pp].size());
  int finished = 0;  // blocks all of whose actions are issued
  for (OpId id = begin_; id < end_; ++id) {
    const Op& op = plan_.program.ops[id];
    // Blocks may have no op. A reduction comes behind all actions of its block, the optimizer behind all.
    const int before = op.kind == OpKind::optimizer         ? blocks
                       : op.kind == OpKind::gradient_reduce ? op.block + 1
                                                            : op.block;
    for (; finished < before; ++finished) finish_empty_actions(finished);
    issue(id);
  }
}

void RankExecutor::begin_step(std::span<const TokenSample> samples) {
  const Schedule& schedule = plan_.program.schedule;
  const size_t ops = end_ - begin_;
  started_.assign(ops, nullptr);
  done_.assign(ops, nullptr);
  current_.clear();
  received_.clear();
  expected_.clear();
  arrived_.clear();
  taken_.clear();
  for (auto& [stream, link] : links_) link.posted = 0;
  Kernels& kernels = device_.kernels();
  for (ChunkState& chunk : chunks_)
    for (ParameterState* state : chunk.all()) kernels.fill(*compute_, state->gradient, 0);

  const auto upload = [&](std::vector<Tensor>& tensors, auto member) {
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      std::vector<int32_t> flat;
      for (int i = 0; i < training_.microbatch_size; ++i) {
        const auto& row = samples[static_cast<size_t>(microbatch) * training_.microbatch_size + i].*member;
        flat.insert(flat.end(), row.begin(), row.end());
      }
      tensors.push_back(device_.allocate(*compute_, MemoryKind::data, DType::i32, training_.tokens(), 1));
      device_.upload(*compute_, tensors.back(), std::as_bytes(std::span(flat)));
    }
  };
  if (mine(0)) upload(tokens_, &TokenSample::tokens);
  if (mine(schedule.placement.stages() - 1)) {
    upload(targets_, &TokenSample::targets);
    loss_tensor_ = device_.allocate(*compute_, MemoryKind::data, statistics_type(training_.type), 1, 1);
    kernels.fill(*compute_, loss_tensor_, 0);
  }
  if (several_processes_) meet_all_ranks();
  // The embedding's gradient is added to on the tp stream.
  tp_->wait(compute_->record());
}

// A sum is done nowhere before all members have come to it: first all ranks of a replica, then all replicas.
void RankExecutor::meet_all_ranks() {
  Tensor flag = device_.allocate(*compute_, MemoryKind::working, DType::f32, 1, 1);
  device_.kernels().fill(*compute_, flag, 0);
  model_group_->all_reduce(*compute_, Reduce::sum, flag);
  if (training_.grid.dp > 1) {  // a group's calls are all on one stream
    dp_->wait(compute_->record());
    dp_group_->all_reduce(*dp_, Reduce::sum, flag);
    compute_->wait(dp_->record());
  }
  common_start_ = compute_->record();
  device_.release(*compute_, flag);
}

void RankExecutor::finish_step() {
  if (loss_tensor_) {
    loss_ = download_doubles(device_, *compute_, loss_tensor_)[0];
    device_.release(*compute_, loss_tensor_);
  }
  compute_->wait(tp_->record());
  for (auto* tensors : {&tokens_, &targets_}) {
    for (Tensor& tensor : *tensors) device_.release(*compute_, tensor);
    tensors->clear();
  }
  device_.synchronize();
}

std::vector<OpTime> RankExecutor::op_times() const {
  std::vector<OpTime> times;
  for (size_t op = 0; op < done_.size(); ++op)
    times.push_back({started_[op] ? started_[op]->seconds() : 0, done_[op]->seconds()});
  return times;
}

std::map<OpId, OpTime> RankExecutor::arrivals() const {
  std::map<OpId, OpTime> times;
  for (const auto& [op, event] : expected_) times[op] = {event->seconds(), arrived_.at(op)->seconds()};
  return times;
}

void RankExecutor::issue(OpId id) {
  const Op& op = plan_.program.ops[id];
  Stream& stream = stream_of(op);
  for (Stream* each : {compute_.get(), tp_.get()}) each->begin(id);
  stream.begin(id);

  // A group of one has nothing to reduce: the op is done when its compute op is.
  const auto dependencies = plan_.program.dependencies(id);
  const bool nothing = op.kind == OpKind::all_reduce && training_.grid.tp == 1;
  if (!nothing) {
    for (const OpId needed : dependencies) {
      if (needed >= begin_ && needed < end_) {
        if (plan_.program.ops[needed].stream != op.stream || !done(needed)) stream.wait(done(needed));
        // An all-reduce of one rank stands for its compute op, which is on this stream already.
      } else {
        post_receives(needed);
        stream.wait(arrived_.at(needed));
      }
    }
  }
  if (training_.record_times) started_[id - begin_] = nothing ? done(dependencies.front()) : stream.record();
  switch (op.kind) {
    case OpKind::compute:
    case OpKind::weight_gradients:
      issue_compute(op);
      break;
    case OpKind::all_reduce:
      issue_all_reduce(op);
      break;
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
      throw std::logic_error("sequence parallelism does not run yet: " + describe(plan_.program, id));
    case OpKind::transfer:
      issue_transfer(op, stream);
      break;
    case OpKind::gradient_reduce:
      issue_gradient_reduce(op);
      break;
    case OpKind::optimizer:
      issue_optimizer();
      break;
  }
  done_[id - begin_] = nothing ? done(dependencies.front()) : stream.record();
  for (const OpId needed : dependencies)
    if (needed < begin_ || needed >= end_) taken_.try_emplace(needed, done(id));
}

void RankExecutor::issue_compute(const Op& op) {
  const int stage = stage_of(op);
  auto& weights = parameters(op.unit, op.chunk, op.layer);
  SavedUnit& kept = saved(op.unit, op.chunk, op.layer, op.microbatch);
  const auto forget = [&] { saved_.erase({static_cast<int>(op.unit), op.chunk, op.layer, op.microbatch}); };

  if (op.kind == OpKind::weight_gradients) {
    unit_weight_gradient(*context_, op.unit, UnitPass::W_early, weights, kept);
    unit_weight_gradient(*context_, op.unit, UnitPass::W_late, weights, kept);
    return forget();
  }
  if (op.unit_pass == UnitPass::W_early || op.unit_pass == UnitPass::W_late) {
    unit_weight_gradient(*context_, op.unit, op.unit_pass, weights, kept);
    if (op.unit_pass == UnitPass::W_late) forget();
    return;
  }

  const bool backward = op.unit_pass == UnitPass::I;
  Tensor& current = current_[{backward, stage, op.microbatch}];
  if (backward && op.unit == Unit::head) {
    current = head_input_gradient(*context_, weights, kept);
    return;
  }
  if (!current) current = take_input(backward, stage, op.microbatch);
  if (backward) {
    current = unit_input_gradient(*context_, op.unit, weights, std::move(current), kept);
  } else if (op.unit == Unit::head) {
    const double factor = 1.0 / (static_cast<double>(training_.tokens()) * training_.grid.dp *
                                 plan_.program.schedule.microbatches);
    head_forward(*context_, weights, std::move(current), targets_[op.microbatch], factor, loss_tensor_, kept);
    current_.erase({backward, stage, op.microbatch});
  } else {
    current = unit_forward(*context_, op.unit, weights, std::move(current), kept);
  }
}

void RankExecutor::issue_all_reduce(const Op& op) {
  const int stage = stage_of(op);
  const bool backward = op.unit_pass == UnitPass::I;
  const bool alone = training_.grid.tp == 1;
  Tensor& current = current_.at({backward, stage, op.microbatch});
  if (!alone) tp_group_->all_reduce(*tp_, Reduce::sum, current);
  // The first stage's backward ends here: the embedding takes its gradient.
  if (backward && stage == 0 && op.unit == Unit::attn && op.layer == 0) {
    embed_backward(alone ? *compute_ : *tp_, op.microbatch, std::move(current));
    current_.erase({backward, stage, op.microbatch});
  }
}

void RankExecutor::issue_transfer(const Op& op, Stream& stream) {
  SendLink& link = sends_.at(op.stream);
  const OpId id = static_cast<OpId>(&op - plan_.program.ops.data());
  for (const auto& [backward, stage, microbatch] : carried(id)) {
    Tensor tensor = take_output(backward, stage, microbatch);
    // An embedding that no layer of this rank follows was made on the compute stream just now.
    if (!backward && stage == 0 && without_segments(0)) stream.wait(compute_->record());
    link.group->send(stream, tensor, 1);
    device_.release(stream, tensor);
  }
}

void RankExecutor::issue_gradient_reduce(const Op& op) {
  dp_->wait(tp_->record());  // the embedding's gradient
  dp_->wait(compute_->record());
  for (ParameterState* state : chunks_[op.chunk].all())
    dp_group_->all_reduce(*dp_, Reduce::sum, state->gradient);
}

void RankExecutor::issue_optimizer() {
  compute_->wait(tp_->record());
  Kernels& kernels = device_.kernels();
  Tensor total = device_.allocate(*compute_, MemoryKind::working, DType::f64, 1, 1);
  kernels.fill(*compute_, total, 0);
  for (ChunkState& chunk : chunks_) {
    for (ParameterState* state : chunk.all()) {
      const bool shared = state->parameter.partial_gradient();
      if (shared) inline_group_->all_reduce(*compute_, Reduce::sum, state->gradient);
      kernels.add_sum_of_squares(*compute_, shared ? 1.0 / training_.grid.tp : 1, state->gradient, total);
    }
  }
  model_group_->all_reduce(*compute_, Reduce::sum, total);
  kernels.check_finite(*compute_, total, "the gradients' norm");
  AdamW options = training_.optimizer;
  options.step = step_;
  for (ChunkState& chunk : chunks_)
    for (ParameterState* state : chunk.all())
      kernels.adamw(*compute_, options, training_.clip_norm, total, state->gradient, state->first_moment,
                    state->second_moment, state->master, state->weight);
  device_.release(*compute_, total);
}

// An action on a chunk of no layers has no op. Where it is a backward of the first stage, the embedding still
// takes its gradient, at the action's place in the order.
void RankExecutor::finish_empty_actions(int block) {
  for (const Action& action : plan_.program.schedule.ranks[place_.pp][block].actions()) {
    const int stage = plan_.program.schedule.placement.stage(place_.pp, action.chunk);
    if (!is_backward(action.pass) || stage != 0 || !without_segments(0)) continue;
    // Of whichever stage it comes, past others without layers.
    int source = 1;
    while (mine(source) && without_segments(source)) ++source;
    if (!mine(source)) {
      const ChainKey key{true, source, action.microbatch};
      for (auto& [stream, link] : links_) {
        for (const OpId transfer : link.transfers) {
          const auto keys = carried(transfer);
          if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
          post_receives(transfer);
          compute_->wait(arrived_.at(transfer));
          embed_backward(*compute_, action.microbatch, take_output(true, source, action.microbatch));
          taken_.try_emplace(transfer, compute_->record());
        }
      }
    } else {
      compute_->wait(tp_->record());  // its chain's last all-reduce was issued before
      embed_backward(*compute_, action.microbatch, take_output(true, source, action.microbatch));
    }
  }
}

void RankExecutor::embed_backward(Stream& stream, int microbatch, Tensor gradient) {
  embedding_gradient(*context_, stream, embedding(), tokens_[microbatch], std::move(gradient));
}

// Receives are posted in the sender's order. The n-th waits until the tensor of the (n − k)-th was taken up,
// k = receives_ahead: so no more than k stand ahead.
void RankExecutor::post_receives(OpId transfer) {
  Link& link = links_.at(plan_.program.ops[transfer].stream);
  const auto behind = std::find(link.transfers.begin(), link.transfers.end(), transfer) + 1;
  const auto count = static_cast<size_t>(behind - link.transfers.begin());
  const auto ahead = static_cast<size_t>(plan_.receives_ahead);
  for (; link.posted < count; ++link.posted) {
    const OpId next = link.transfers[link.posted];
    link.stream->begin(next);
    if (link.posted >= ahead) {
      const auto taken = taken_.find(link.transfers[link.posted - ahead]);
      if (taken == taken_.end())
        throw std::logic_error("more receives ahead than " + std::to_string(ahead) + ": " +
                               describe(plan_.program, next));
      link.stream->wait(taken->second);
    }
    if (training_.record_times) expected_[next] = link.stream->record();
    for (const ChainKey& key : carried(next)) {
      Tensor tensor = device_.allocate(*link.stream, MemoryKind::communication, training_.type,
                                       training_.tokens(), training_.model.hidden);
      link.group->receive(*link.stream, tensor, 0);
      received_[key] = tensor;
    }
    arrived_[next] = link.stream->record();
  }
}

std::vector<RankExecutor::ChainKey> RankExecutor::carried(OpId transfer) const {
  const Program& program = plan_.program;
  const Op& op = program.ops[transfer];
  const int sender = program.stream_of(transfer).rank;
  const int stage = program.schedule.placement.stage(sender, op.chunk);
  std::vector<ChainKey> keys{{is_backward(op.pass), stage, op.microbatch}};
  if (op.tensors == 2) {  // merged: the block's other forward, of the same chunk
    const Action& other = program.schedule.ranks[sender][op.block].actions()[1];
    keys.emplace_back(is_backward(other.pass), stage, other.microbatch);
  }
  return keys;
}

Tensor RankExecutor::take_input(bool backward, int stage, int microbatch) {
  if (backward) return take_output(true, stage + 1, microbatch);
  if (stage > 0) return take_output(false, stage - 1, microbatch);
  return embedding_forward(*context_, embedding(), tokens_[microbatch]);
}

const ParameterState& RankExecutor::embedding() const {
  for (const ChunkState& chunk : chunks_)
    if (!chunk.embedding.empty()) return chunk.embedding[0];
  throw std::logic_error("the first stage has no embedding");
}

Tensor RankExecutor::take_output(bool backward, int stage, int microbatch) {
  if (mine(stage) && without_segments(stage)) return take_input(backward, stage, microbatch);
  const ChainKey key{backward, stage, microbatch};
  Tensor tensor;
  if (mine(stage)) {
    tensor = std::move(current_.at(key));
    current_.erase(key);
  } else {
    tensor = std::move(received_.at(key));
    received_.erase(key);
  }
  if (!tensor) throw std::logic_error("an output was taken twice");
  return tensor;
}

SavedUnit& RankExecutor::saved(Unit unit, int chunk, int layer, int microbatch) {
  return saved_[{static_cast<int>(unit), chunk, layer, microbatch}];
}

std::vector<ParameterState>& RankExecutor::parameters(Unit unit, int chunk, int layer) {
  switch (unit) {
    case Unit::attn:
      return chunks_[chunk].attn[layer];
    case Unit::mlp:
      return chunks_[chunk].mlp[layer];
    case Unit::head:
      return chunks_[chunk].head;
    case Unit::embedding:
      break;  // inside the first op of its chain
  }
  throw std::logic_error("a unit of no kind");
}

}  // namespace stp
