#include "stp/program/vocabulary_ops.h"

namespace stp {

// The pass of the vocabulary whose sum over all ranks the action needs.
std::optional<Pass> VocabularyOps::needed(const Action& action) const {
  if (whole()) return {};
  if (action.pass == Pass::T || action.pass == Pass::U) return Pass::S;
  if (is_of_vocabulary(action.pass) || action.pass == Pass::W) return {};
  const int stage = b_.stage(action);
  if (action.pass == Pass::F && stage == 0) return Pass::E;
  if (is_backward(action.pass) && stage + 1 == b_.stages())
    return vocabulary_ == Vocabulary::one_barrier ? Pass::S : Pass::T;
  return {};
}

std::optional<Ref> VocabularyOps::input_of(const Action& action) const {
  if (action.pass == Pass::E) return kNothing;
  if (action.pass == Pass::S) return b_.output_of(false, b_.stages() - 1, action.microbatch);
  if (action.pass == Pass::G) return b_.output_of(true, 0, action.microbatch);
  const auto pass = needed(action);
  return pass ? std::optional(of_all(*pass, action.microbatch)) : std::nullopt;
}

ValueId VocabularyOps::value_of(const Action& action) const {
  if (action.pass == Pass::E) return b_.program.value(ValueKind::activation, 0, action.microbatch);
  return b_.program.value(ValueKind::gradient, action.pass == Pass::G ? 0 : b_.stages() - 1,
                          action.microbatch);
}

// A sum is in the list directly before the block that needs it, so that it keeps no earlier block waiting.
void VocabularyOps::begin_block(const Block& block) {
  for (const Action& action : block.actions()) {
    const auto pass = needed(action);
    const int owner = b_.program.schedule.placement.rank_of(pass == Pass::E ? 0 : b_.stages() - 1);
    if (!pass || b_.rank != owner || added_.contains({*pass, action.microbatch})) continue;
    added_.emplace(*pass, action.microbatch);
    b_.begin_op();
    for (int rank = 0; rank < b_.program.schedule.pp(); ++rank)
      b_.depend(b_.vocabulary_output(*pass, rank, action.microbatch));
    const Action of{*pass, 0, action.microbatch};
    const bool statistics = *pass == Pass::S && vocabulary_ == Vocabulary::two_barriers;
    const OpId op = add(OpKind::vocabulary_reduce, of, statistics ? kNoValue : value_of(of));
    b_.set_output(of_all(*pass, action.microbatch), {op, kNothing});
  }
}

bool VocabularyOps::take_output(const Action& action, const std::array<Ref, 2>& made, ValueId value) {
  if (is_of_vocabulary(action.pass)) {
    if (action.pass != Pass::U && action.pass != Pass::G)
      b_.set_output(b_.vocabulary_output(action.pass, b_.rank, action.microbatch), made);
    return true;
  }
  const bool backward = is_backward(action.pass);
  const int stage = b_.stage(action);
  if (whole() || (backward ? stage != 0 : stage + 1 != b_.stages())) return false;
  b_.begin_op();
  for (const Ref ref : made) b_.depend(ref);
  b_.set_output(b_.output_of(backward, stage, action.microbatch),
                {add(OpKind::vocabulary_broadcast, action, value), kNothing});
  return true;
}

OpId VocabularyOps::add(OpKind kind, const Action& action, ValueId value) {
  const OpId id = b_.add_of_chunk(kind, action, b_.stream(StreamKind::vocabulary), value, value);
  const bool embedding = action.pass == Pass::E || is_backward(action.pass);
  b_.program.ops[id].unit = embedding ? Unit::embedding : Unit::head;
  return id;
}

}  // namespace stp
