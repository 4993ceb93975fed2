// The ops of units, transfers, exchanges and copies.
#include "stp/runtime/executor.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "stp/runtime/host_copies.h"

namespace stp {
namespace {

// Whether what a forward makes is needed beyond its pass: not if its whole layer is recomputed later.
bool keeps(const Recompute& recompute, const Op& op) {
  return !recompute.layer || op.recomputed() || op.unit == Unit::head;
}

// The norm of a forward. What a backward recomputes is there for one pass alone.
void norm_forward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                  const Op& op, Tensor input, SavedUnit& saved) {
  const auto kind = [](bool kept) { return kept ? MemoryKind::saved : MemoryKind::working; };
  const bool kept = keeps(context.recompute, op);
  norm_forward(context, stream, parameters, std::move(input), saved, kind(kept),
               kind(kept && !context.recompute.norm_of(op.unit)));
}

// In I: what a forward dropped of the norm.
void norm_again(RankState& rank, Stream& stream, const Op& op) {
  SavedUnit& saved = rank.saved_unit(op);
  if (!rank.context->recompute.norm_of(op.unit) || saved[Saved::norm_output]) return;
  norm_forward(*rank.context, stream, rank.parameters(op), saved[Saved::norm_input], saved, MemoryKind::saved,
               MemoryKind::saved);
}

// In I of the merger, which gets the gradient of the language model's input: keeps it for the embedding's W,
// and returns the rows of images.
Tensor keep_for_embedding(RankState& rank, const Op& op, Tensor gradient) {
  Tensor images = image_rows(*rank.context, gradient);
  rank.device.retag(gradient, MemoryKind::saved);
  rank.saved[{Unit::embedding, op.chunk, 0, op.microbatch}][Saved::output_gradient] = std::move(gradient);
  return images;
}

// Whether it is the first op of a unit's F or I but for F's norm.
bool begins(const Op& op) {
  return op.step == 0 && (op.part == UnitPart::whole || op.part == UnitPart::before);
}

// F of a unit of a layer, or of the merger, or a step of a part of it.
void issue_forward(RankState& rank, const Op& op) {
  const UnitContext& context = rank.context_of(op.unit);
  const bool overlaps = context.division.overlaps();
  SavedUnit& saved = rank.saved_unit(op);
  if (op.part == UnitPart::norm || (begins(op) && !context.sequence_parallel))
    norm_forward(context, *rank.compute, rank.parameters(op), op,
                 op.input == kNoValue ? saved[Saved::norm_input] : rank.take(op.input), saved);
  if (op.part == UnitPart::norm) return;
  Tensor gathered;
  if (begins(op) && context.sequence_parallel && !overlaps) gathered = rank.take(op.input);
  const bool in_ring = overlaps && op.part == UnitPart::before;
  const bool last = op.step + 1 == context.division.steps(op.unit, op.unit_pass, op.part);
  const Tensor normed = gathered  ? gathered
                        : in_ring ? ring_rows(context, op, saved)
                                  : saved[Saved::norm_output];
  const Tensor output =
      unit_forward(context, op, rank.parameters(op), normed, saved, keeps(context.recompute, op));
  if (gathered) rank.device.release(*rank.compute, gathered);
  if (in_ring && last) rank.device.release(*rank.compute, saved[Between::ring]);
  if (!output) return;  // there is another part
  (overlaps ? saved[Between::piece] : rank.values[op.output]) = output;
  if (!op.recomputed() && last) drop_recomputed(context, op.unit, saved);
}

// The same of I, with the norm's but with sequence parallelism, where that stands behind the reduce-scatter.
void issue_input_gradient(RankState& rank, const Op& op) {
  const UnitContext& context = rank.context_of(op.unit);
  SavedUnit& saved = rank.saved_unit(op);
  if (begins(op)) norm_again(rank, *rank.compute, op);
  Tensor output_gradient = begins(op) && !context.division.overlaps() ? rank.take(op.input) : Tensor{};
  if (op.unit == Unit::merger && op.pass == Pass::I)
    output_gradient = keep_for_embedding(rank, op, std::move(output_gradient));
  Tensor gradient = unit_input_gradient(context, op, rank.parameters(op), std::move(output_gradient), saved);
  const bool recomputed = (op.part == UnitPart::whole || op.part == UnitPart::before) &&
                          op.step + 1 == context.division.steps(op.unit, op.unit_pass, op.part);
  if (recomputed && op.pass == Pass::I && saved[Between::gathered])  // W gathers it again
    rank.device.release(*rank.compute, saved[Between::gathered]);
  if (!gradient) return;        // there is another part
  if (op.unit == Unit::merger)  // which has no residual
    norm_backward(context, *rank.compute, rank.parameters(op), saved, 0, {}, gradient);
  else if (!context.sequence_parallel)
    norm_backward(context, *rank.compute, rank.parameters(op), saved, 1.0 / context.tp(),
                  saved[Saved::output_gradient], gradient);
  rank.values[op.output] = gradient;
}

}  // namespace

void Executor::begin(RankState& rank, Stream& stream, OpId id) {
  issuing_ = &rank;
  // With graphs the device gets here what the op before left: collectives first.
  for (Stream* each : {rank.tp.get(), rank.gather.get(), rank.compute.get(), &stream})
    if (each != nullptr) each->begin(id);
  for (const OpId needed : plan_.program.dependencies(id)) {
    stream.wait(events(rank, needed).done);
    if (plan_.program.frees(id, needed)) free_offloaded(rank, stream, needed);
  }
  if (const auto sent = plan_.sent_before.find(id); sent != plan_.sent_before.end() && is_own(rank, id))
    for (const OpId transfer : sent->second) stream.wait(events(rank, transfer).done);
  if (training_.record_times) events(rank, id).started = stream.record();
}

void Executor::end(RankState& rank, Stream& stream, OpId id) {
  const EventRef done = events(rank, id).done = stream.record();
  for (const OpId needed : plan_.program.dependencies(id)) {
    if (is_own(rank, needed) || plan_.program.ops[needed].kind != OpKind::transfer) continue;
    for (Link& link : links_[plan_.program.ops[needed].stream]) {
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
  if (is_exchange(op.kind)) return issue_exchange(id);
  if (is_of_replicas(op.kind)) return issue_of_replicas(id);
  if (is_host_copy(op.kind)) return issue_host_copy(id);
  if (op.kind == OpKind::gradient_norm) return issue_gradient_norm(id);
  if (is_norm_transfer(op.kind)) return issue_norm_transfer(id);
  if (op.kind == OpKind::optimizer) return issue_optimizer(id);
  if (op.kind == OpKind::embedding_reduce) throw std::logic_error("tied embeddings are only simulated");
  for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank]) {
    const auto stream_of = [&](RankState& rank) -> Stream& {
      return is_collective(op.kind) ? rank.collectives() : *rank.compute;
    };
    const bool collective = is_collective(op.kind);
    for (RankState* rank : group.ranks) {
      // Before the op begins, whose time this is not.
      if (!collective && rank->behind_collective) rank->device.hold_compute(*rank->compute);
      rank->behind_collective = collective && rank->tp;
      begin(*rank, stream_of(*rank), id);
    }
    if (collective)
      issue_collective(group, op);
    else
      issue_compute(group, op);
    for (RankState* rank : group.ranks) end(*rank, stream_of(*rank), id);
  }
}

void Executor::issue_compute(TensorGroup& group, const Op& op) {
  const bool forward = op.unit_pass == UnitPass::F;
  if (!has_pass(op.unit, UnitPass::I)) {  // it works on samples
    for (RankState* rank : group.ranks) {
      issuing_ = rank;
      issue_samples(*rank, op);
    }
    return;
  }
  if (!forward && op.unit_pass != UnitPass::I) return issue_weight_gradients(group, op);
  if (!forward && begins(op) &&
      (op.pass == Pass::B || plan_.program.strategy.recompute.first_linear(op.unit)))
    gather_again(group, op);
  if (op.unit == Unit::head && forward) {
    const double tokens = static_cast<double>(training_.tokens()) * training_.grid.cp * training_.grid.dp;
    return head_forward(group, op, 1.0 / (tokens * plan_.program.schedule.microbatches));
  }
  if (op.unit == Unit::head) return head_input_gradient(group, op);
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    if (forward)
      issue_forward(*rank, op);
    else
      issue_input_gradient(*rank, op);
  }
}

// Of the embedding, of tokens or of patches: F, and the gradient of its weights.
void Executor::issue_samples(RankState& rank, const Op& op) {
  const bool forward = op.unit_pass == UnitPass::F;
  const UnitContext& context = rank.context_of(op.unit);
  const ParameterState& weight = rank.parameters(op).front();
  if (op.unit == Unit::patches) {
    Tensor& patches = rank.saved_unit(op)[Saved::patches];
    if (!forward) {
      patches_weight_gradient(context, weight, patches, rank.take(op.input));
      rank.saved.erase({op.unit, op.chunk, op.layer, op.microbatch});
      return;
    }
    patches = std::exchange(rank.patches.at(op.microbatch), {});
    rank.device.retag(patches, MemoryKind::saved);
    rank.values[op.output] = patches_forward(context, weight, patches);
    return;
  }
  const Tensor& tokens = rank.tokens[op.microbatch];
  if (forward) {
    const Tensor out = embedding_forward(context, weight, tokens);
    if (op.input != kNoValue) add_images(context, rank.take(op.input), out);
    rank.values[op.output] = out;
    return;
  }
  // Behind a vision encoder I has kept it; B goes on with those of its rows that are of images.
  auto kept = rank.saved.extract({op.unit, op.chunk, op.layer, op.microbatch});
  Tensor gradient = kept ? kept.mapped()[Saved::output_gradient] : rank.take(op.input);
  if (op.output != kNoValue) rank.values[op.output] = image_rows(context, gradient);
  embedding_weight_gradient(context, weight, tokens, gradient);
}

void Executor::issue_weight_gradients(TensorGroup& group, const Op& op) {
  gather_again(group, op);
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    SavedUnit& saved = rank->saved_unit(op);
    const bool both = op.kind == OpKind::weight_gradients;
    if (both || op.unit_pass == UnitPass::W_early)
      unit_weight_gradient(rank->context_of(op.unit), op.unit, UnitPass::W_early, rank->parameters(op),
                           saved);
    if (!both && op.unit_pass == UnitPass::W_early) continue;
    unit_weight_gradient(rank->context_of(op.unit), op.unit, UnitPass::W_late, rank->parameters(op), saved);
    rank->saved.erase({op.unit, op.chunk, op.layer, op.microbatch});
  }
}

// With sequence parallelism, the norm's output is saved in shards of rows, and gathered again for
// recomputation and weight gradients, concurrently with the compute stream.
void Executor::gather_again(TensorGroup& group, const Op& op) {
  if (!plan_.program.strategy.sequence_parallel || group.ranks.front()->saved_unit(op)[Between::gathered])
    return;
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    SavedUnit& saved = rank->saved_unit(op);
    rank->gather->wait(rank->compute->fence());
    norm_again(*rank, *rank->gather, op);
    saved[Between::gathered] = rank->context->make(*rank->gather, MemoryKind::working, training_.tokens(),
                                                   saved[Saved::norm_output].columns);
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

// Puts a reduced piece of columns in its place; after the last, `piece` is the whole.
bool Executor::add_piece(RankState& rank, const Op& op, SavedUnit& saved, Tensor& piece) {
  Stream& stream = rank.collectives();
  if (op.step == 0)
    saved[Between::output] =
        rank.context->make(stream, MemoryKind::working, piece.rows, kPipelineSteps * piece.columns);
  rank.device.kernels().issue(stream, kernel::CopyColumns{.from = piece,
                                                          .from_column = 0,
                                                          .to = saved[Between::output],
                                                          .to_column = op.step * piece.columns,
                                                          .count = piece.columns});
  rank.device.release(stream, piece);
  if (op.step + 1 < kPipelineSteps) return false;
  piece = std::exchange(saved[Between::output], {});
  return true;
}

// A unit's input with sequence parallelism: forward its norm's output, backward the output's gradient, whose
// own rows are later the residual.
Part Executor::gather_part(RankState& rank, const Op& op) {
  const UnitContext& context = *rank.context;
  Stream& stream = rank.collectives();
  Tensor in = op.input == kNoValue ? rank.saved_unit(op)[Saved::norm_input] : rank.take(op.input);
  if (op.unit_pass == UnitPass::F) {
    SavedUnit& saved = rank.saved_unit(op);
    norm_forward(context, stream, rank.parameters(op), op, in, saved);
    in = saved[Saved::norm_output];
  } else if (op.unit != Unit::embedding) {
    rank.device.retag(in, MemoryKind::working);
    rank.saved_unit(op)[Between::residual] = in;
  }
  const Tensor out = context.make(stream, MemoryKind::working, context.tokens(), in.columns);
  return {&stream, in, out};
}

void Executor::issue_transfer(OpId id) {
  const Op& op = plan_.program.ops[id];
  const size_t number = plan_.number_on_link[id], ahead = plan_.order.receives_ahead;
  for (Link& link : links_[op.stream]) {
    Stream& stream = link.sender != nullptr ? *link.send_stream : *link.receive_stream;
    if (link.sender != nullptr) begin(*link.sender, stream, id);
    if (link.receiver != nullptr) {
      issuing_ = link.receiver;
      stream.begin(id);
      if (number >= ahead) stream.wait(link.taken.at(number - ahead));
      if (training_.record_times) link.receiver->arrivals[id].started = stream.record();
    }
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
    if (link.sender != nullptr) end(*link.sender, stream, id);
    if (link.receiver != nullptr) link.receiver->arrivals[id].done = stream.record();
  }
}

void Executor::issue_exchange(OpId id) {
  const Op& op = plan_.program.ops[id];
  const bool rows = op.kind == OpKind::row_exchange;
  const auto stream_of = [&](const RankState& rank) { return rows ? rank.tp.get() : rank.cp.get(); };
  const int stage = plan_.program.stream_of(id).rank;
  std::map<const RankState*, ExchangeTensors> tensors;  // of all ranks of the stage
  for (const auto& rank : ranks_) {
    if (rank->place.pp != stage) continue;
    begin(*rank, *stream_of(*rank), id);
    SavedUnit& saved = rank->saved_unit(op);
    if (op.input != kNoValue) {
      saved[Between::residual] = rank->take(op.input);
      rank->device.retag(saved[Between::residual], MemoryKind::working);
    }
    tensors[rank.get()] = exchange_tensors(*rank->context, *stream_of(*rank), op, saved);
  }
  for (RankGroup& group : (rows ? tensor_rings_ : context_groups_)[stage]) {
    std::vector<Part> parts;
    for (const RankState* rank : group.ranks) {
      const auto& [sent, received] = tensors.at(rank);
      parts.push_back({stream_of(*rank), sent, received});
    }
    if (op.kind == OpKind::all_to_all)
      group.group->all_to_all(parts);
    else
      group.group->transfer(parts);
  }
  for (const auto& rank : ranks_) {
    if (rank->place.pp != stage) continue;
    finish_exchange(*rank->context, *stream_of(*rank), op, tensors.at(rank.get()), rank->saved_unit(op));
    end(*rank, *stream_of(*rank), id);
  }
}

void Executor::issue_host_copy(OpId id) {
  const Op& op = plan_.program.ops[id];
  const std::vector<OffloadedTensor>& tensors = offloaded_[plan_.program.stage_of(id)];
  for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank])
    for (RankState* rank : group.ranks) {
      Stream& stream = op.kind == OpKind::offload ? *rank->d2h : *rank->h2d;
      begin(*rank, stream, id);
      if (op.kind == OpKind::offload)
        offload(*rank, id, op, tensors);
      else
        reload(*rank, op, tensors);
      end(*rank, stream, id);
    }
}

}  // namespace stp
