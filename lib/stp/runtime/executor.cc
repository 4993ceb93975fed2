// The ops of units, transfers, exchanges and copies.
#include "stp/runtime/executor.h"

#include <algorithm>
#include <utility>

#include "stp/runtime/exchanges.h"
#include "stp/runtime/unit_run.h"

namespace stp {
namespace {

Tensor& tensor_of(RankState& rank, const Op& op, const OffloadedTensor& each) {
  return rank.saved[{each.unit, op.chunk, each.layer, op.microbatch}][each.tensor.which];
}

// Copies `from` to a new tensor of the same shape.
Tensor copy(Device& device, Stream& stream, MemoryKind kind, const Tensor& from) {
  Tensor to = device.allocate(stream, kind, from.type, from.rows, from.columns);
  device.kernels().issue(stream, kernel::Copy{.from = from, .to = to});
  return to;
}

// Copies the tensors to the host, as work of rank.d2h. Their units no longer hold them. Their device memory
// stays allocated.
void offload(RankState& rank, OpId id, const Op& op, std::span<const OffloadedTensor> tensors) {
  std::vector<Tensor>&leaving = rank.leaving[id], &on_host = rank.on_host[{op.chunk, op.microbatch}];
  for (const OffloadedTensor& each : tensors) {
    leaving.push_back(std::exchange(tensor_of(rank, op, each), {}));
    on_host.push_back(copy(rank.device, *rank.d2h, MemoryKind::host, leaving.back()));
  }
}

// Frees the offloaded tensors' device memory, as work of `stream`, which has waited for the offload.
void free_offloaded(RankState& rank, Stream& stream, OpId offload) {
  const auto node = rank.leaving.extract(offload);
  for (Tensor& tensor : node.mapped()) rank.device.release(stream, tensor);
}

// Copies the tensors back to their units, as work of `stream`, and frees the host memory.
void reload(RankState& rank, Stream& stream, const Op& op, std::span<const OffloadedTensor> tensors) {
  std::vector<Tensor> on_host = std::move(rank.on_host.extract({op.chunk, op.microbatch}).mapped());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensor_of(rank, op, tensors[i]) = copy(rank.device, stream, MemoryKind::saved, on_host[i]);
    rank.device.release(stream, on_host[i]);
  }
}

}  // namespace

void Executor::wait_for_needed(RankState& rank, Stream& stream, OpId id) {
  issuing_ = &rank;
  // With graphs the device gets collected kernels of the previous op here, collectives and copies first.
  for (Stream* each :
       {rank.tp.get(), rank.gather.get(), rank.d2h.get(), rank.h2d.get(), rank.compute.get(), &stream})
    if (each != nullptr) each->begin(id);
  const OpKind kind = plan_.program.ops[id].kind;
  // Its group waits for all ranks' own.
  const bool shared =
      kind == OpKind::embedding_reduce || kind == OpKind::pipeline_reduce || is_of_all_stages(kind);
  for (const OpId needed : plan_.program.dependencies(id)) {
    if (is_host_copy(plan_.program.ops[needed].kind) && !is_own(rank, needed)) {
      wait_for_neighbour(rank, stream, needed);
      continue;
    }
    if (shared && !is_own(rank, needed) && !rank.arrivals.contains(needed)) continue;
    stream.wait(events(rank, needed).done);
    if (plan_.program.frees(id, needed)) free_offloaded(rank, stream, needed);
  }
  if (const auto sent = plan_.sent_before.find(id); sent != plan_.sent_before.end() && is_own(rank, id))
    for (const OpId transfer : sent->second) stream.wait(events(rank, transfer).done);
}

void Executor::start(RankState& rank, Stream& stream, OpId id) {
  if (training_.record_times) events(rank, id).started = stream.record();
  stream.start(id);
}

void Executor::end(RankState& rank, Stream& stream, OpId id) {
  const EventRef done = events(rank, id).done = stream.record();
  for (const OpId needed : plan_.program.dependencies(id)) {
    if (is_own(rank, needed) || plan_.program.ops[needed].kind != OpKind::transfer) continue;
    for (Link& link : links_[plan_.program.on_stream[needed]]) {
      if (link.receiver != &rank) continue;
      link.taken.resize(std::max<size_t>(link.taken.size(), plan_.number_on_link[needed] + 1));
      EventRef& taken = link.taken[plan_.number_on_link[needed]];
      if (!taken) taken = done;
    }
  }
}

void Executor::issue(OpId id) {
  const Op& op = plan_.program.ops[id];
  if (op.kind == OpKind::transfer) return issue_transfer(id);
  if (op.kind == OpKind::exchange) return issue_exchange(id);
  if (is_of_replicas(op.kind)) return issue_of_replicas(id);
  if (is_host_copy(op.kind)) return issue_host_copy(id);
  if (op.kind == OpKind::pipeline_reduce) return issue_pipeline_reduce(id);
  if (op.kind == OpKind::gradient_norm) return issue_gradient_norm(id);
  if (is_norm_transfer(op.kind)) return issue_norm_transfer(id);
  if (op.kind == OpKind::optimizer) return issue_optimizer(id);
  if (op.kind == OpKind::embedding_reduce) return issue_embedding_reduce(id);
  if (is_of_all_stages(op.kind)) return issue_of_all_stages(id);
  for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank]) {
    const auto stream_of = [&](RankState& rank) -> Stream& {
      return is_collective(op.kind) ? rank.collectives() : *rank.compute;
    };
    for (RankState* rank : group.ranks) begin(*rank, stream_of(*rank), id);
    if (is_collective(op.kind))
      issue_collective(group, op);
    else
      issue_compute(group, op);
    for (RankState* rank : group.ranks) end(*rank, stream_of(*rank), id);
  }
}

void Executor::issue_compute(TensorGroup& group, const Op& op) {
  const bool forward = op.unit_pass == UnitPass::F, input_gradient = op.unit_pass == UnitPass::I;
  const bool again = begins(op) && (op.pass == Pass::B || is_recomputed(plan_.program.strategy.recompute,
                                                                        op.unit, ComponentKind::linear));
  if (!forward && (!input_gradient || again)) gather_again(group, op);
  // With the vocabulary on all ranks it comes when these know its statistics.
  if (op.pass == Pass::U || (op.pass == Pass::T && input_gradient)) head_loss(group, op, loss_factor());
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    UnitRun run(*rank, op);
    if (forward)
      run.forward();
    else if (input_gradient)
      run.input_gradient();
    else
      run.weight_gradients();
  }
  if (op.unit != Unit::head) return;
  if (forward) head_statistics(group, op);
  if (forward && op.pass == Pass::F) head_loss(group, op, loss_factor());
  if (input_gradient) sum_head_gradient(group, op);
}

// With sequence parallelism, the norm's output is saved in shards of rows, and gathered again for
// recomputation and weight gradients, concurrently with the compute stream.
void Executor::gather_again(TensorGroup& group, const Op& op) const {
  if (!plan_.program.strategy.sequence_parallel || op.unit == Unit::embedding ||
      group.ranks.front()->saved_unit(op)[Between::gathered])
    return;
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    SavedUnit& saved = rank->saved_unit(op);
    rank->gather->wait(rank->compute->fence());
    norm_again(*rank, *rank->gather, op);
    saved[Between::gathered] = rank->context->make(
        *rank->gather, MemoryKind::working, rank->context->tokens(), saved[Saved::norm_output].columns);
    parts.push_back({rank->gather.get(), saved[Saved::norm_output], saved[Between::gathered]});
  }
  group.again->all_gather(parts);
  for (RankState* rank : group.ranks) rank->saved_unit(op).gathered_at = rank->gather->fence();
}

void Executor::issue_collective(TensorGroup& group, const Op& op) {
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    if (op.kind == OpKind::all_gather) {
      parts.push_back(gather_part(*rank, op));
      continue;
    }
    const bool piece = op.part != UnitPart::whole;
    const Tensor in = piece ? std::exchange(rank->saved_unit(op)[Between::piece], {}) : rank->take(op.input);
    const UnitContext& context = *rank->context;
    parts.push_back({&rank->collectives(), in, in});
    if (op.kind == OpKind::reduce_scatter)
      parts.back().out =
          context.make(rank->collectives(), MemoryKind::working, context.own_tokens(), in.columns);
  }
  if (op.kind == OpKind::all_reduce)
    group.ops->all_reduce(Reduce::sum, parts);
  else if (op.kind == OpKind::reduce_scatter)
    group.ops->reduce_scatter(parts);
  else
    group.ops->all_gather(parts);

  for (size_t i = 0; i < parts.size(); ++i) {
    RankState& rank = *group.ranks[i];
    issuing_ = &rank;
    Stream& stream = rank.collectives();
    Tensor &in = parts[i].in, &out = parts[i].out;
    SavedUnit* const saved = op.unit == Unit::embedding ? nullptr : &rank.saved_unit(op);
    if (op.kind == OpKind::reduce_scatter) {
      rank.device.release(stream, in);
      if (op.unit_pass == UnitPass::I) {
        norm_backward(*rank.context, stream, rank.parameters(op), *saved, 1, (*saved)[Between::residual],
                      out);
        rank.device.release(stream, (*saved)[Between::residual]);
      }
    }
    if (op.kind == OpKind::all_gather && saved == nullptr) rank.device.release(stream, in);
    if (op.part != UnitPart::whole && !add_piece(rank, op, rank.saved_unit(op), out)) continue;
    if (op.output == kNoValue)
      rank.device.release(stream, out);
    else
      rank.values[op.output] = out;
  }
}

// Puts a reduced piece of columns in its place. After the last piece, `piece` is the whole output.
bool Executor::add_piece(RankState& rank, const Op& op, SavedUnit& saved, Tensor& piece) {
  Stream& stream = rank.collectives();
  if (op.step == 0)
    saved[Between::output] =
        rank.context->make(stream, MemoryKind::working, piece.rows, kPipelineSteps * piece.columns);
  rank.context->copy_columns(stream, piece, 0, saved[Between::output], op.step * piece.columns,
                             piece.columns);
  rank.device.release(stream, piece);
  if (op.step + 1 < kPipelineSteps) return false;
  piece = std::exchange(saved[Between::output], {});
  return true;
}

// A unit's input with sequence parallelism. In the forward it is the norm's output. In the backward it is the
// output's gradient; this rank's rows of it are later the residual.
Part Executor::gather_part(RankState& rank, const Op& op) {
  const UnitContext& context = *rank.context;
  Stream& stream = rank.collectives();
  Tensor in = op.input == kNoValue ? rank.saved_unit(op)[Saved::norm_input] : rank.take(op.input);
  if (op.unit_pass == UnitPass::F) {
    SavedUnit& saved = rank.saved_unit(op);
    norm_of_forward(rank, stream, op, in);
    in = saved[Saved::norm_output];
  } else if (op.unit != Unit::embedding) {
    rank.device.retag(in, MemoryKind::working);
    rank.saved_unit(op)[Between::residual] = in;
  }
  const Tensor out = context.make(stream, MemoryKind::working, context.tokens(), in.columns);
  return {&stream, in, out};
}

void Executor::on_links(OpId id, const std::function<void(Link&, Stream&)>& carry) {
  const size_t number = plan_.number_on_link[id], ahead = plan_.order.receives_ahead;
  for (Link& link : links_[plan_.program.on_stream[id]]) {
    Stream& stream = link.sender != nullptr ? *link.send_stream : *link.receive_stream;
    if (link.sender != nullptr) begin(*link.sender, stream, id);
    if (link.receiver != nullptr) {
      issuing_ = link.receiver;
      stream.begin(id);
      if (number >= ahead) stream.wait(link.taken.at(number - ahead));
      if (training_.record_times) link.receiver->arrivals[id].started = stream.record();
    }
    carry(link, stream);
    if (link.sender != nullptr) end(*link.sender, stream, id);
    if (link.receiver != nullptr) link.receiver->arrivals[id].done = stream.record();
  }
}

void Executor::issue_transfer(OpId id) {
  const Op& op = plan_.program.ops[id];
  on_links(id, [&](Link& link, Stream& stream) {
    for (const ValueId value : {op.input, op.output}) {
      if (value == kNoValue) continue;
      std::vector<Part> parts;
      if (link.sender != nullptr) parts.push_back({&stream, link.sender->take(value), {}});
      if (link.receiver != nullptr) {
        const UnitContext& context = *link.receiver->context;
        const Tensor received =
            context.make(stream, MemoryKind::communication, context.own_tokens(), training_.model.hidden);
        parts.push_back({&stream, {}, received});
        link.receiver->values[value] = received;
      }
      link.group->transfer(parts);
      if (link.sender != nullptr) link.sender->device.release(stream, parts.front().in);
    }
  });
}

void Executor::issue_exchange(OpId id) {
  const Op& op = plan_.program.ops[id];
  const ExchangeRule& rule = rule_of(op.exchange);
  const auto stream_of = [&](const RankState& rank) { return rule.axes.tp ? rank.tp.get() : rank.cp.get(); };
  const int stage = plan_.program.stream_of(id).rank;
  std::map<const RankState*, ExchangeTensors> tensors;  // of all ranks of the stage
  for (RankState* rank : ranks_of(stage)) {
    begin(*rank, *stream_of(*rank), id);
    SavedUnit& saved = rank->saved_unit(op);
    if (op.input != kNoValue) {
      saved[Between::residual] = rank->take(op.input);
      rank->device.retag(saved[Between::residual], MemoryKind::working);
    }
    tensors[rank] = exchange_tensors(*rank->context, *stream_of(*rank), op, saved);
  }
  for (RankGroup& group : exchange_groups_[stage].at(rule.axes)) {
    std::vector<Part> parts;
    for (const RankState* rank : group.ranks) {
      const auto& [sent, received] = tensors.at(rank);
      parts.push_back({stream_of(*rank), sent, received});
    }
    group.group->give({rule.all_to_all ? CallKind::all_to_all : CallKind::transfer, Reduce::sum, parts});
  }
  for (RankState* rank : ranks_of(stage)) {
    finish_exchange(*rank->context, *stream_of(*rank), op, tensors.at(rank), rank->saved_unit(op));
    end(*rank, *stream_of(*rank), id);
  }
}

// Copies take turns on a link that ranks share, where one process drives these: no data depends on it.
void Executor::wait_for_neighbour(RankState& rank, Stream& stream, OpId needed) {
  const std::vector<int> stages = grid_.group(rank.world_rank, {.pp = true});
  if (RankState* other = local(stages[plan_.program.stream_of(needed).rank]))
    stream.wait(events(*other, needed).done);
}

void Executor::issue_host_copy(OpId id) {
  const Op& op = plan_.program.ops[id];
  const std::vector<OffloadedTensor>& tensors = offloaded_[plan_.program.stage_of(id)];
  for (RankState* rank : ranks_of(plan_.program.stream_of(id).rank)) {
    Stream& stream = plan_.program.stream_of(id).kind == StreamKind::d2h ? *rank->d2h : *rank->h2d;
    begin(*rank, stream, id);
    if (op.kind == OpKind::offload)
      offload(*rank, id, op, tensors);
    else
      reload(*rank, stream, op, tensors);
    end(*rank, stream, id);
  }
}

}  // namespace stp
