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

PassInputs::PassInputs(const Schedule& schedule)
    : placement_(schedule.placement), vocabulary_(vocabulary_of(schedule)) {
  for (int rank = 0; rank < placement_.ranks(); ++rank)
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      for (const bool backward : {false, true})
        hops_.push_back(hop_of(placement_, placement_.stage(rank, chunk), backward));
}

int PassInputs::needed_of_vocabulary(Pass pass) const {
  switch (pass) {
    case Pass::S:
      return output();
    case Pass::T:
      return statistics();
    case Pass::U:
      return stages();
    case Pass::G:
      return input_gradient();
    default:
      return kNothing;
  }
}

int PassInputs::summed_by(int tensor) const {
  if (vocabulary_ == Vocabulary::whole || (tensor != 0 && tensor != stages() && tensor != statistics()))
    return kNothing;
  return placement_.rank_of(tensor == 0 ? 0 : stages() - 1);
}

int PassInputs::made_of_vocabulary(Pass pass) const {
  switch (pass) {
    case Pass::E:
      return 0;
    case Pass::S:
      return vocabulary_ == Vocabulary::two_barriers ? statistics() : stages();
    case Pass::T:
      return stages();
    default:
      return kNothing;
  }
}

}  // namespace stp
