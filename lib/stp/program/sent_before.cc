#include "stp/program/sent_before.h"

#include <algorithm>

namespace stp {

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
