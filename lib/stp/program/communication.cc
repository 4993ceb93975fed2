#include "stp/program/communication.h"

#include <algorithm>
#include <stdexcept>

namespace stp {
namespace {

constexpr OpId kNone = ~OpId{0};

// How deep every op lies: one more than the deepest op it waits for. `also` gives some ops one more op to
// wait for. An op on or behind a circle keeps level 0.
std::vector<uint32_t> levels(const Program& program, const std::vector<OpId>& also) {
  std::vector<uint32_t> level(program.ops.size(), 0);
  std::vector<OpId> next(program.ops.size(), kNone), head(program.streams.size(), kNone), last(head);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const uint32_t stream = program.ops[op].stream;
    (last[stream] == kNone ? head[stream] : next[last[stream]]) = op;
    last[stream] = op;
  }
  // A stream waits for one op at a time, so the waiters of an op are a list through the streams.
  std::vector<uint32_t> first_waiter(program.ops.size(), kNone), next_waiter(program.streams.size(), kNone);
  std::vector<uint32_t> before(program.streams.size(), 0), runnable;
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream) runnable.push_back(stream);
  while (!runnable.empty()) {
    const uint32_t stream = runnable.back();
    runnable.pop_back();
    for (OpId op = head[stream]; op != kNone; op = head[stream]) {
      uint32_t deepest = before[stream];
      OpId missing = also[op] != kNone && level[also[op]] == 0 ? also[op] : kNone;
      if (also[op] != kNone) deepest = std::max(deepest, level[also[op]]);
      for (const OpId needed : program.dependencies(op)) {
        if (level[needed] == 0) missing = needed;
        deepest = std::max(deepest, level[needed]);
      }
      if (missing != kNone) {
        next_waiter[stream] = first_waiter[missing];
        first_waiter[missing] = stream;
        break;
      }
      level[op] = before[stream] = deepest + 1;
      head[stream] = next[op];
      for (uint32_t waiter = first_waiter[op]; waiter != kNone; waiter = next_waiter[waiter])
        runnable.push_back(waiter);
    }
  }
  return level;
}

// The first op of the receiver that waits for each transfer. (Where sends block, ops of the sender wait too.)
std::vector<OpId> takers(const Program& program) {
  std::vector<OpId> taker(program.ops.size(), kNone);
  for (OpId op = 0; op < program.ops.size(); ++op)
    for (const OpId needed : program.dependencies(op))
      if (program.ops[needed].kind == OpKind::transfer && taker[needed] == kNone &&
          program.stream_of(op).rank == program.stream_of(needed).peer)
        taker[needed] = op;
  return taker;
}

}  // namespace

std::vector<OpId> communication_order(const Program& program) {
  const std::vector<uint32_t> level = levels(program, std::vector<OpId>(program.ops.size(), kNone));
  std::vector<OpId> order;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    if (level[op] == 0) throw std::runtime_error("deadlock: " + describe(program, op) + " can never start");
    const OpKind kind = program.ops[op].kind;
    if (is_collective(kind) || kind == OpKind::transfer || kind == OpKind::gradient_reduce)
      order.push_back(op);
  }
  std::stable_sort(order.begin(), order.end(), [&](OpId a, OpId b) { return level[a] < level[b]; });
  return order;
}

int receives_ahead(const Program& program) {
  const std::vector<OpId> taker = takers(program);
  std::vector<std::vector<OpId>> links(program.streams.size());
  size_t longest = 1;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].kind != OpKind::transfer) continue;
    auto& link = links[program.ops[op].stream];
    link.push_back(op);
    longest = std::max(longest, link.size());
  }
  const auto runs = [&](size_t ahead) {
    std::vector<OpId> also(program.ops.size(), kNone);
    for (const auto& link : links)
      for (size_t n = ahead; n < link.size(); ++n) also[link[n]] = taker[link[n - ahead]];
    const std::vector<uint32_t> level = levels(program, also);
    return std::find(level.begin(), level.end(), 0) == level.end();
  };
  // More receives ahead are fewer waits: the smallest number that runs is found by halving.
  size_t low = 1, high = longest;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (runs(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (!runs(low)) throw std::runtime_error("deadlock: the program has a circle whatever is received ahead");
  return static_cast<int>(low);
}

}  // namespace stp
