#include "stp/program/builder.h"

#include <utility>

namespace stp {

ProgramBuilder::ProgramBuilder(Program begun) : program(std::move(begun)) {
  const int ranks = program.schedule.pp();
  for (int r = 0; r < ranks; ++r) {
    program.streams.push_back({StreamKind::compute, r, -1});
    program.streams.push_back({StreamKind::tp, r, -1});
  }
  streams_.resize(ranks);
  const size_t shared =
      program.vocabulary() == Vocabulary::whole ? 0 : 3 * size_t(ranks + 1) * program.schedule.microbatches;
  outputs_.assign(chains() + 2 + 2 * static_cast<size_t>(ranks) + shared, {kNothing, kNothing});
}

void ProgramBuilder::begin_rank(int next) {
  rank = next;
  latest = {};
  program.rank_begin.push_back(size());
}

void ProgramBuilder::begin_block(int next) {
  block = next;
  latest.compute = latest.collective = kNothing;
}

void ProgramBuilder::end_block() {
  if (latest.compute != kNothing) latest.rank_compute = latest.compute;
  if (latest.collective != kNothing) latest.rank_collective = latest.collective;
}

OpId ProgramBuilder::add_of_chunk(OpKind kind, const Action& action, StreamKind of) {
  return add({.kind = kind,
              .unit = {},
              .unit_pass = {},
              .pass = action.pass,
              .chunk = action.chunk,
              .layer = 0,
              .microbatch = action.microbatch,
              .block = block},
             stream(of));
}

uint32_t ProgramBuilder::stream(StreamKind kind, int peer) {
  for (const uint32_t made : streams_[rank])
    if (program.streams[made].kind == kind && program.streams[made].peer == peer) return made;
  program.streams.push_back({kind, rank, peer});
  streams_[rank].push_back(static_cast<uint32_t>(program.streams.size() - 1));
  return streams_[rank].back();
}

Program ProgramBuilder::finish() && {
  program.rank_begin.push_back(size());
  begin_op();
  resolved_for_.assign(outputs_.size(), kNothing);
  std::vector<OpId> resolved;
  resolved.reserve(program.depends.size());
  size_t begin = 0;
  for (size_t op = 0; op < program.ops.size(); ++op) {
    const size_t end = program.depends_begin[op + 1];
    program.depends_begin[op] = static_cast<uint32_t>(resolved.size());
    for (size_t i = begin; i < end; ++i) resolve(program.depends[i], static_cast<OpId>(op), resolved);
    begin = end;
  }
  program.depends_begin.back() = static_cast<uint32_t>(resolved.size());
  program.depends = std::move(resolved);
  return std::move(program);
}

// An output is visited once per op: a chain without segments passes on another's output, often the same.
void ProgramBuilder::resolve(Ref ref, OpId op, std::vector<OpId>& resolved) {
  if (ref == kNothing) return;
  if ((ref & kOutputBit) == 0) return resolved.push_back(ref);
  const Ref output = ref & ~kOutputBit;
  if (resolved_for_[output] == op) return;
  resolved_for_[output] = op;
  for (const Ref part : outputs_[output]) resolve(part, op, resolved);
}

}  // namespace stp
