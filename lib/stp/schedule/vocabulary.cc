#include "stp/schedule/vocabulary.h"

#include "stp/schedule/timing.h"

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

int PassInputs::needed(int rank, const Action& action) const {
  switch (action.pass) {
    case Pass::W:
    case Pass::E:
      return kNothing;
    case Pass::S:
      return output();
    case Pass::T:
      return statistics();
    case Pass::U:
      return stages();
    case Pass::G:
      return input_gradient();
    default:
      return hop_of(placement_, rank, action);
  }
}

int PassInputs::summed_by(int tensor) const {
  if (vocabulary_ == Vocabulary::whole || (tensor != 0 && tensor != stages() && tensor != statistics()))
    return kNothing;
  return placement_.rank_of(tensor == 0 ? 0 : stages() - 1);
}

int PassInputs::made(int rank, const Action& action) const {
  switch (action.pass) {
    case Pass::W:
    case Pass::U:
    case Pass::G:
      return kNothing;
    case Pass::E:
      return 0;
    case Pass::S:
      return vocabulary_ == Vocabulary::two_barriers ? statistics() : stages();
    case Pass::T:
      return stages();
    default:
      break;
  }
  const int next = hop_of(placement_, rank, action) + 1;
  if (vocabulary_ == Vocabulary::whole) return next;  // behind the last backward nothing waits for it
  return next == stages() ? output() : next == 2 * stages() ? input_gradient() : next;
}

}  // namespace stp
