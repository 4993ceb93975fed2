// Which value a chain works on, begins with and hands on. Private to this module.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "stp/program/builder.h"
#include "stp/program/units.h"
#include "stp/program/vocabulary_ops.h"

namespace stp {

/// Segments by pass and virtual stage; those of passes of the vocabulary by pass alone.
using Chains = std::array<std::vector<std::vector<Segment>>, kPasses>;

class ChainValues {
 public:
  ChainValues(const ProgramBuilder& builder, const Chains& chains, const VocabularyOps& vocabulary)
      : b_(builder), chains_(chains), vocabulary_(vocabulary) {}

  /// The chain's own value.
  [[nodiscard]] ValueId of(const Action& action, int stage) const {
    if (is_of_vocabulary(action.pass)) return vocabulary_.value_of(action);
    const ValueKind kind = action.pass == Pass::F ? ValueKind::activation : ValueKind::gradient;
    return b_.program.value(kind, stage, action.microbatch);
  }
  /// The first input of its main line. The input of W, which only the embedding's gradient needs, is the
  /// output of the stage's own I.
  [[nodiscard]] ValueId source_of(const Action& action, int stage) const {
    if (action.pass == Pass::S) return produced(false, b_.stages() - 1, action.microbatch, 0);
    if (action.pass == Pass::G) return produced(true, 0, action.microbatch, 0);
    if (is_of_vocabulary(action.pass)) return kNoValue;
    const int first = first_of(stage);
    if (action.pass == Pass::W) return produced(true, stage, action.microbatch, first);
    if (action.pass == Pass::F) return produced(false, stage - 1, action.microbatch, first);
    return produced(true, stage + 1, action.microbatch, first);
  }
  /// The value sent after it. Without an embedding no op makes what an empty first stage sends: it counts as
  /// the stage's own.
  [[nodiscard]] ValueId sent(const Action& action, int stage) const {
    const ValueId made = produced(is_backward(action.pass), stage, action.microbatch, first_of(stage));
    return made == kNoValue ? of(action, stage) : made;
  }

 private:
  // The first stage of a stage's pipeline.
  [[nodiscard]] int first_of(int stage) const { return stage - stage % depth(); }
  [[nodiscard]] int depth() const { return b_.program.schedule.placement.depth(); }
  // The output of `stage`: the value of the nearest chain of its pipeline, up to this stage, that has a
  // segment.
  [[nodiscard]] ValueId produced(bool backward, int stage, int microbatch, int first) const {
    const auto& chains = chains_[static_cast<size_t>(backward ? Pass::I : Pass::F)];
    const int end = first + depth();
    while (stage >= first && stage < end && chains[stage].empty()) stage += backward ? 1 : -1;
    if (stage < first || stage == end) {
      if (vocabulary_.whole()) return kNoValue;
      stage = std::clamp(stage, first, end - 1);  // E's, or the head's, under the number of that stage's own
    }
    return b_.program.value(backward ? ValueKind::gradient : ValueKind::activation, stage, microbatch);
  }

  const ProgramBuilder& b_;
  const Chains& chains_;
  const VocabularyOps& vocabulary_;
};

}  // namespace stp
