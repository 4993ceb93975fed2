// The ops of vocabulary parallelism between the chains of its passes: collectives of all pipeline ranks.
// Private to this module.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "stp/program/builder.h"
#include "stp/program/lower.h"

namespace stp {

class VocabularyOps {
 public:
  explicit VocabularyOps(ProgramBuilder& builder) : b_(builder) {}

  [[nodiscard]] bool whole() const { return vocabulary_ == Vocabulary::whole; }
  [[nodiscard]] Vocabulary vocabulary() const { return vocabulary_; }
  /// What an action waits for, if the vocabulary decides it.
  [[nodiscard]] std::optional<Ref> input_of(const Action& action) const;
  /// The value of the chain of a pass of the vocabulary.
  [[nodiscard]] ValueId value_of(const Action& action) const;
  /// Adds the sums over all ranks that the block's actions are the first to need on the rank that they are
  /// for: the rank of the first stage for E, else of the last.
  void begin_block(const Block& block);
  /// Takes the output of a chain, `made` (its `value`), if it is for all ranks: false if it is not.
  bool take_output(const Action& action, const std::array<Ref, 2>& made, ValueId value);

 private:
  [[nodiscard]] std::optional<Pass> needed(const Action& action) const;
  [[nodiscard]] Ref of_all(Pass pass, int microbatch) const {
    return b_.vocabulary_output(pass, ProgramBuilder::kAllRanks, microbatch);
  }
  OpId add(OpKind kind, const Action& action, ValueId value);

  ProgramBuilder& b_;
  const Vocabulary vocabulary_ = b_.program.vocabulary;
  std::set<std::pair<Pass, int>> added_;  // sums, by pass and microbatch
};

}  // namespace stp
