#include "stp/program/builder.h"

#include <algorithm>
#include <span>
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
      program.vocabulary == Vocabulary::whole ? 0 : 3 * size_t(ranks + 1) * program.schedule.microbatches;
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

Ref ProgramBuilder::input_of(const Action& action) const {
  const int stage = this->stage(action);
  if (action.pass == Pass::W) return kNothing;
  if (action.pass == Pass::F)
    return is_first(stage) ? kNothing : output_of(false, stage - 1, action.microbatch);
  return is_last(stage) ? output_of(false, stage, action.microbatch)
                        : output_of(true, stage + 1, action.microbatch);
}

// Numbers of ops move by the distance of the blocks; those of values and outputs by the distance of the
// microbatches of their action. An action uses the output before it; the embedding's W that of its own I.
void ProgramBuilder::copy(const WrittenBlock& from, const Block& to) {
  const auto source = from.block.actions(), copied = to.actions();
  const auto moves = [&](size_t i) {
    return static_cast<uint32_t>(copied[i].microbatch - source[i].microbatch);
  };
  const std::array<uint32_t, 2> by{moves(0), to.braided() ? moves(1) : 0};
  const Action& other = source.back();
  const Ref other_uses = other.pass == Pass::W ? output_of(other) : input_of(other);
  const OpId distance = size() - from.begin;
  const auto moved = [&](Ref ref) {
    if (ref == kNothing) return ref;
    if ((ref & kOutputBit) == 0) return ref + distance;
    return ref + by[to.braided() && ref == other_uses];
  };
  const auto append = [](auto& items, size_t begin, size_t end) {
    const size_t size = items.size();
    items.resize(size + end - begin);
    std::copy_n(items.begin() + begin, end - begin, items.begin() + size);
    return std::span(items).subspan(size);
  };
  const auto ahead = static_cast<uint32_t>(program.depends.size()) - from.depends_begin;
  for (Ref& ref : append(program.depends, from.depends_begin, from.depends_end)) ref = moved(ref);
  for (uint32_t& each : append(program.depends_begin, from.begin, from.end)) each += ahead;
  append(program.on_stream, from.begin, from.end);
  for (Op& op : append(program.ops, from.begin, from.end)) {
    const bool of_other = to.braided() && Action{op.pass, op.chunk, op.microbatch} == other;
    op.microbatch = copied[of_other].microbatch;
    op.block = block;
    if (op.input != kNoValue) op.input += by[of_other];
    if (op.output != kNoValue) op.output += by[of_other];
  }
  latest.compute = moved(from.latest.compute);
  latest.collective = moved(from.latest.collective);
  if (from.latest.scatter != kNothing && from.latest.scatter >= from.begin)
    latest.scatter = moved(from.latest.scatter);
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i].pass == Pass::W) continue;
    const auto [first, last] = outputs_[output_of(source[i]) & ~kOutputBit];
    set_output(output_of(copied[i]), {moved(first), moved(last)});
  }
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
