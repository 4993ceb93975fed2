#include "stp/schedule/vocabulary.h"

#include "stp/schedule/pipeline_state.h"

namespace stp {

Vocabulary vocabulary_of(const Schedule& schedule) {
  Vocabulary found = Vocabulary::whole;
  if (schedule.ranks.empty()) return found;
  for (const Block& block : schedule.ranks[0])
    for (const Action& action : block.actions()) {
      if (action.pass == Pass::T) return Vocabulary::two_barriers;
      if (is_of_vocabulary(action.pass)) found = Vocabulary::one_barrier;
      if (action.pass == Pass::U) return found;
    }
  return found;
}

bool is_single_and_whole(const Schedule& schedule) {
  return schedule.placement.pipelines() == 1 && vocabulary_of(schedule) == Vocabulary::whole;
}

PassInputs::PassInputs(const Schedule& schedule)
    : placement_(schedule.placement), vocabulary_(vocabulary_of(schedule)) {
  for (int rank = 0; rank < placement_.ranks(); ++rank)
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      for (size_t i = 0; i < kPasses; ++i) {
        const auto pass = static_cast<Pass>(i);
        const int hop = hop_of(placement_, placement_.stage(rank, chunk), is_backward(pass));
        of_actions_.push_back(is_of_vocabulary(pass) ? of_vocabulary(pass)
                              : pass == Pass::W      ? OfAction{}
                                                     : of_hop(hop));
      }
}

PassInputs::OfAction PassInputs::of_hop(int hop) const {
  const int next = hop + 1;
  if (vocabulary_ == Vocabulary::whole) return {hop, next};  // behind the last backward nothing waits for it
  return {hop, next == stages() ? output() : next == 2 * stages() ? input_gradient() : next};
}

PassInputs::OfAction PassInputs::of_vocabulary(Pass pass) const {
  switch (pass) {
    case Pass::E:
      return {kNothing, 0};
    case Pass::S:
      return {output(), vocabulary_ == Vocabulary::two_barriers ? statistics() : stages()};
    case Pass::T:
      return {statistics(), stages()};
    case Pass::U:
      return {stages(), kNothing};
    case Pass::G:
      return {input_gradient(), kNothing};
    default:
      return {};
  }
}

int PassInputs::summed_by(int tensor) const {
  if (vocabulary_ == Vocabulary::whole || (tensor != 0 && tensor != stages() && tensor != statistics()))
    return kNothing;
  return placement_.rank_of(tensor == 0 ? 0 : stages() - 1);
}

}  // namespace stp
