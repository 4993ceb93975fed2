// Ops of all pipeline ranks, which share the head and the embedding: docs/program-options.md.

#include "stp/runtime/executor.h"

namespace stp {

// The rank that has the value, or needs it, is the owner of the op's stream. An all-reduce with zeros takes
// the place of a broadcast: groups have none.
void Executor::issue_of_all_stages(OpId id) {
  const Op& op = plan_.program.ops[id];
  const uint32_t on = plan_.program.on_stream[id];
  for (RankGroup& group : vocabulary_groups_[on]) {
    std::vector<VocabularyPart> members;
    for (RankState* rank : group.ranks) {
      members.push_back({*rank, *rank->vocabulary.at(on)});
      begin(*rank, members.back().stream, id);
    }
    if (op.kind == OpKind::vocabulary_reduce && op.pass == Pass::S)
      merge_statistics(*group.group, members, op, loss_factor());
    if (op.output != kNoValue) share_value(group, members, id);
    for (const auto& [rank, stream] : members) end(rank, stream, id);
  }
}

void Executor::share_value(RankGroup& group, std::span<const VocabularyPart> members, OpId id) {
  const Op& op = plan_.program.ops[id];
  const bool broadcast = op.kind == OpKind::vocabulary_broadcast;
  std::vector<Part> parts;
  for (const auto& [rank, stream] : members) {
    Tensor value;
    if (broadcast && !is_own(rank, id)) {
      const UnitContext& context = *rank.context;
      value = context.make(stream, MemoryKind::communication, context.own_tokens(), training_.model.hidden);
      rank.device.kernels().issue(stream, kernel::Fill{.tensor = value, .value = 0});
    } else {
      value = rank.take(op.input);
    }
    parts.push_back({&stream, value, value});
  }
  group.group->all_reduce(Reduce::sum, parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    RankState& rank = members[i].rank;
    if (broadcast || is_own(rank, id))
      rank.values[op.output] = parts[i].in;
    else
      rank.device.release(members[i].stream, parts[i].in);
  }
}

std::vector<Tensor> Executor::shared_gradients(const RankState& rank) {
  std::vector<Tensor> gradients;
  for (const Unit unit : {Unit::head, Unit::embedding})
    for (const ParameterState& state : rank.chunks.front().of(unit, 0))
      if (state.parameter.partial_gradient()) gradients.push_back(state.gradient);
  return gradients;
}

void Executor::sum_shared_gradients() {
  for (RankGroup& group : shared_groups_)
    for (size_t i = 0; i < shared_gradients(*group.ranks.front()).size(); ++i)
      sum(group, &RankState::compute, [i](const RankState& rank) { return shared_gradients(rank)[i]; });
}

}  // namespace stp
