#include "stp/program/repeat.h"

#include "stp/base/error.h"
#include "stp/program/lower.h"

namespace stp {

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
