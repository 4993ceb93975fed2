#include "stp/program/program.h"

#include <array>

#include "stp/base/error.h"
#include "stp/model/components.h"
#include "stp/program/lower.h"

namespace stp {

std::string to_string(StreamKind kind) {
  constexpr std::array kNames{"compute", "tp", "p2p", "dp", "cp", "d2h", "h2d", "vocabulary"};
  return kNames.at(static_cast<size_t>(kind));
}

int Program::stage_of(OpId op) const {
  const OpKind kind = ops[op].kind;
  if (kind == OpKind::optimizer || kind == OpKind::gradient_norm || is_norm_transfer(kind)) return -1;
  return schedule.placement.stage(stream_of(op).rank, ops[op].chunk);
}

std::string collective_name(OpKind kind) {
  if (kind == OpKind::reduce_scatter) return "reduce-scatter";
  return kind == OpKind::all_gather ? "all-gather" : "all-reduce";
}

std::string exchange_name(const Op& op) {
  return rule_of(op.exchange).name + (" " + std::to_string(op.step));
}

namespace {

// "offload of F0.1" or "reload for B0.1".
std::string host_copy_name(const Op& op) {
  return (op.kind == OpKind::offload ? "offload of " : "reload for ") +
         to_string(Action{op.pass, op.chunk, op.microbatch});
}

// "chunk 0", or "chunk 0, bucket 1" where it has several.
std::string bucket_name(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  std::string name = "chunk " + std::to_string(op.chunk);
  if (!program.buckets(program.stage_of(id)).empty()) name += ", bucket " + std::to_string(op.step);
  return name;
}

}  // namespace

std::string describe(const Program& program, OpId id) {
  const ProgramStream& stream = program.stream_of(id);
  return "rank " + std::to_string(stream.rank) + ", " + to_string(stream.kind) + ", " +
         describe_op(program, id);
}

std::string describe_op(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  std::string text;
  switch (op.kind) {
    case OpKind::compute:
      text += to_string(op.unit, op.unit_pass) + suffix(op.part);
      if (program.strategy.steps(op.unit, op.unit_pass, op.part) > 1) text += " " + std::to_string(op.step);
      break;
    case OpKind::exchange:
      text += exchange_name(op) + " of " + to_string(op.unit, op.unit_pass);
      break;
    case OpKind::weight_gradients:
      text += to_string(op.unit) + ".W";
      break;
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
      text += collective_name(op.kind) + (op.part == UnitPart::whole ? "" : " " + std::to_string(op.step)) +
              " of " + to_string(op.unit, op.unit_pass);
      break;
    case OpKind::transfer:
      text += "transfer to rank " + std::to_string(program.stream_of(id).peer);
      break;
    case OpKind::gradient_reduce:
    case OpKind::gradient_scatter:
      return "gradients of " + bucket_name(program, id);
    case OpKind::weight_gather:
      return "weights of " + bucket_name(program, id);
    case OpKind::embedding_reduce:
      return "gradients of the embedding";
    case OpKind::pipeline_reduce:
      return "gradients of both pipelines";
    case OpKind::gradient_norm:
      return "norm of the gradients";
    case OpKind::norm_prefix:
      return "norm so far to rank " + std::to_string(program.stream_of(id).peer);
    case OpKind::norm_total:
      return "last step's norm to rank " + std::to_string(program.stream_of(id).peer);
    case OpKind::optimizer:
      return "optimizer";
    case OpKind::offload:
    case OpKind::reload:
      return host_copy_name(op);
    case OpKind::vocabulary_broadcast:
      text += "broadcast";
      break;
    case OpKind::vocabulary_reduce:
      text += "sum over all ranks";
      break;
  }
  text += " of " + to_string(Action{op.pass, op.chunk, op.microbatch});
  if (op.kind != OpKind::transfer && !is_of_all_stages(op.kind) && is_of_layer(op.unit))
    text += ", layer " + std::to_string(op.layer);
  return text;
}

OpId repeated(const Program& program, OpId op, int step, int steps) {
  const int rank = program.stream_of(op).rank;
  const OpId begin = program.rank_begin[rank], count = program.rank_begin[rank + 1] - begin;
  return begin * steps + count * step + (op - begin);
}

Program repeat(const Program& program, int steps) {
  if (program.ops.size() * steps > kMaxOps)
    throw InputError("", "post_validation",
                     "needs " + std::to_string(steps) + " steps of the program, together more than " +
                         std::to_string(kMaxOps) + " ops",
                     "use fewer microbatches, layers or ranks");
  Program all = program;
  all.ops.clear();
  all.on_stream.clear();
  all.depends_begin.clear();
  all.depends.clear();
  for (OpId& begin : all.rank_begin) begin *= steps;
  all.ops.reserve(program.ops.size() * steps);
  all.on_stream.reserve(program.ops.size() * steps);
  all.depends_begin.reserve(program.ops.size() * steps + 1);
  for (size_t rank = 0; rank + 1 < program.rank_begin.size(); ++rank)
    for (int step = 0; step < steps; ++step)
      for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
        all.depends_begin.push_back(static_cast<uint32_t>(all.depends.size()));
        for (const OpId needed : program.dependencies(op))
          all.depends.push_back(repeated(program, needed, step, steps));
        if (program.dependencies(op).empty() && step > 0)
          all.depends.push_back(repeated(program, program.rank_begin[rank + 1] - 1, step - 1, steps));
        all.ops.push_back(program.ops[op]);
        all.on_stream.push_back(program.on_stream[op]);
      }
  all.depends_begin.push_back(static_cast<uint32_t>(all.depends.size()));
  return all;
}

}  // namespace stp
