#include "stp/program/issue_order.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace stp {
namespace {

constexpr OpId kNone = ~OpId{0};

// The level of every op: one more than the largest level of the op before it in its rank's list and of its
// dependencies. `also` gives some ops one more dependency. An op that can never be issued keeps level 0.
std::vector<uint32_t> levels(const Program& program, const std::vector<OpId>& also) {
  std::vector<uint32_t> level(program.ops.size(), 0);
  const size_t ranks = program.rank_begin.size() - 1;
  // A rank waits for one op at a time, so the ranks that wait for an op form a linked list.
  std::vector<OpId> next(program.rank_begin.begin(), program.rank_begin.end() - 1);
  std::vector<size_t> first_waiter(program.ops.size(), ranks), next_waiter(ranks, ranks), runnable(ranks);
  std::iota(runnable.rbegin(), runnable.rend(), size_t{0});
  while (!runnable.empty()) {
    const size_t rank = runnable.back();
    runnable.pop_back();
    for (OpId& op = next[rank]; op != program.rank_begin[rank + 1]; ++op) {
      uint32_t deepest = op == program.rank_begin[rank] ? 0 : level[op - 1];
      OpId missing = kNone;
      const auto wait_for = [&](OpId needed) {
        if (level[needed] == 0) missing = needed;
        deepest = std::max(deepest, level[needed]);
      };
      for (const OpId needed : program.dependencies(op)) wait_for(needed);
      if (also[op] != kNone) wait_for(also[op]);
      if (missing != kNone) {
        next_waiter[rank] = std::exchange(first_waiter[missing], rank);
        break;
      }
      level[op] = deepest + 1;
      for (size_t waiter = first_waiter[op]; waiter != ranks; waiter = next_waiter[waiter])
        runnable.push_back(waiter);
    }
  }
  return level;
}

// The first op of the receiver that waits for each transfer. (Where sends block, ops of the sender wait too.)
std::vector<OpId> consumers(const Program& program) {
  std::vector<OpId> consumer(program.ops.size(), kNone);
  for (OpId op = 0; op < program.ops.size(); ++op)
    for (const OpId needed : program.dependencies(op))
      if (program.ops[needed].kind == OpKind::transfer && consumer[needed] == kNone &&
          program.stream_of(op).rank == program.stream_of(needed).peer)
        consumer[needed] = op;
  return consumer;
}

}  // namespace

IssueOrder issue_order(const Program& program) {
  std::vector<OpId> also(program.ops.size(), kNone);
  const std::vector<uint32_t> unlimited = levels(program, also);
  if (const auto stuck = std::find(unlimited.begin(), unlimited.end(), 0); stuck != unlimited.end())
    throw std::runtime_error("deadlock: " + describe(program, static_cast<OpId>(stuck - unlimited.begin())) +
                             " can never start");

  const std::vector<OpId> consumer = consumers(program);
  std::vector<std::vector<OpId>> links(program.streams.size());
  size_t longest = 1;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    if (program.ops[op].kind != OpKind::transfer) continue;
    links[program.on_stream[op]].push_back(op);
    longest = std::max(longest, links[program.on_stream[op]].size());
  }
  std::vector<uint32_t> level;
  const auto runs = [&](size_t ahead) {
    std::fill(also.begin(), also.end(), kNone);
    for (const auto& link : links)
      for (size_t n = ahead; n < link.size(); ++n) also[link[n]] = consumer[link[n - ahead]];
    level = levels(program, also);
    return std::find(level.begin(), level.end(), 0) == level.end();
  };
  // More receives ahead mean fewer waits: binary search for the smallest number that works.
  size_t low = 1, high = longest;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (runs(middle))
      high = middle;
    else
      low = middle + 1;
  }
  runs(low);  // with all receives at once nothing waits

  IssueOrder order{std::vector<OpId>(program.ops.size()), static_cast<int>(low)};
  std::iota(order.ops.begin(), order.ops.end(), OpId{0});
  std::stable_sort(order.ops.begin(), order.ops.end(), [&](OpId a, OpId b) { return level[a] < level[b]; });
  return order;
}

TransfersByOp sent_before(const Program& program, std::span<const OpId> order) {
  struct Link {
    uint32_t stream;
    std::vector<OpId> transfers = {};
    size_t known = 0;  // transfers that end before some compute op of the sender
  };
  std::vector<Link> links;
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream)
    if (program.streams[stream].kind == StreamKind::p2p) links.push_back({stream});
  // By op and link: the number of its transfers that are done when the op is done.
  std::vector<uint32_t> all_done(program.ops.size() * links.size());
  const auto done_with = [&](OpId op) {
    return std::span(all_done).subspan(op * links.size(), links.size());
  };
  const auto none = static_cast<OpId>(program.ops.size());
  std::vector<OpId> latest(program.streams.size(), none);
  TransfersByOp before;
  for (const OpId id : order) {
    const uint32_t stream = program.on_stream[id];
    const ProgramStream& here = program.streams[stream];
    const std::span<uint32_t> done = done_with(id);
    const auto follow = [&](OpId op) {
      for (size_t i = 0; i < links.size(); ++i) done[i] = std::max(done[i], done_with(op)[i]);
    };
    for (const OpId needed : program.dependencies(id)) {
      const Op& other = program.ops[needed];  // processes do not wait for each other's copies
      if (!is_host_copy(other.kind) || program.stream_of(needed).rank == here.rank) follow(needed);
    }
    if (latest[stream] != none) follow(latest[stream]);
    latest[stream] = id;
    for (size_t i = 0; i < links.size(); ++i) {
      Link& link = links[i];
      if (link.stream == stream && program.ops[id].kind == OpKind::transfer) {
        link.transfers.push_back(id);
        ++done[i];
      }
      if (here.kind == StreamKind::compute && here.rank == program.streams[link.stream].rank)
        for (; link.known < done[i]; ++link.known) before[id].push_back(link.transfers[link.known]);
    }
  }
  return before;
}

}  // namespace stp
