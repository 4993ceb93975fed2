#include "stp/program/communication.h"

#include <algorithm>
#include <stdexcept>

#include "stp/program/topological_order.h"

namespace stp {
namespace {

// The first op of the receiver that waits for each transfer. (Where sends block, ops of the sender wait too.)
std::vector<OpId> consumers(const Program& program) {
  std::vector<OpId> consumer(program.ops.size(), kNoOp);
  for (OpId op = 0; op < program.ops.size(); ++op)
    for (const OpId needed : program.dependencies(op))
      if (program.ops[needed].kind == OpKind::transfer && consumer[needed] == kNoOp &&
          program.stream_of(op).rank == program.stream_of(needed).peer)
        consumer[needed] = op;
  return consumer;
}

}  // namespace

std::vector<OpId> communication_order(const Program& program) {
  std::vector<OpId> order = topological_order(program);
  std::erase_if(order, [&](OpId op) {
    const OpKind kind = program.ops[op].kind;
    return !is_collective(kind) && kind != OpKind::transfer && kind != OpKind::gradient_reduce;
  });
  return order;
}

int receives_ahead(const Program& program) {
  const std::vector<OpId> consumer = consumers(program);
  std::vector<std::vector<OpId>> links(program.streams.size());
  size_t longest = 1;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].kind != OpKind::transfer) continue;
    auto& link = links[program.ops[op].stream];
    link.push_back(op);
    longest = std::max(longest, link.size());
  }
  const auto runs = [&](size_t ahead) {
    std::vector<OpId> also(program.ops.size(), kNoOp);
    for (const auto& link : links)
      for (size_t n = ahead; n < link.size(); ++n) also[link[n]] = consumer[link[n - ahead]];
    const std::vector<uint32_t> level = op_levels(program, also);
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
