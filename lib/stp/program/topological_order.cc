#include "stp/program/topological_order.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace stp {

std::vector<uint32_t> op_levels(const Program& program, const std::vector<OpId>& also) {
  // By stream, the first op that has no level yet, and the level of the one before it.
  std::vector<OpId> head(program.streams.size(), kNoOp), next(program.ops.size(), kNoOp), last(head);
  std::vector<uint32_t> before(program.streams.size(), 0);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const uint32_t stream = program.ops[op].stream;
    (last[stream] == kNoOp ? head[stream] : next[last[stream]]) = op;
    last[stream] = op;
  }
  // A stream waits for one op at a time, so the waiters of an op are a list through the streams.
  std::vector<uint32_t> first_waiter(program.ops.size(), kNoOp), next_waiter(program.streams.size(), kNoOp);
  std::vector<uint32_t> runnable(program.streams.size());
  std::iota(runnable.begin(), runnable.end(), 0);

  std::vector<uint32_t> level(program.ops.size(), 0);
  while (!runnable.empty()) {
    const uint32_t stream = runnable.back();
    runnable.pop_back();
    for (OpId op = head[stream]; op != kNoOp; op = head[stream]) {
      uint32_t deepest = before[stream];
      OpId missing = kNoOp;
      const auto wait_for = [&](OpId needed) {
        if (level[needed] == 0) missing = needed;
        deepest = std::max(deepest, level[needed]);
      };
      if (!also.empty() && also[op] != kNoOp) wait_for(also[op]);
      for (const OpId needed : program.dependencies(op)) wait_for(needed);
      if (missing != kNoOp) {
        next_waiter[stream] = first_waiter[missing];
        first_waiter[missing] = stream;
        break;
      }
      level[op] = before[stream] = deepest + 1;
      head[stream] = next[op];
      for (uint32_t waiter = first_waiter[op]; waiter != kNoOp; waiter = next_waiter[waiter])
        runnable.push_back(waiter);
    }
  }
  return level;
}

std::vector<OpId> topological_order(const Program& program) {
  const std::vector<uint32_t> level = op_levels(program);
  const auto stuck = std::ranges::find(level, 0U);
  if (stuck != level.end())
    throw std::runtime_error("deadlock: " + describe(program, static_cast<OpId>(stuck - level.begin())) +
                             " can never start");
  // A counting sort, since there are few levels for many ops.
  std::vector<size_t> place(level.empty() ? 0 : std::ranges::max(level) + 2, 0);
  for (const uint32_t n : level) ++place[n + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<OpId> order(level.size());
  for (OpId op = 0; op < level.size(); ++op) order[place[level[op]]++] = op;
  return order;
}

}  // namespace stp
