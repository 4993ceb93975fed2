// Vocabulary parallelism: what the passes wait for if all ranks share the head and the embedding.
#pragma once

#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

/// Who has the head and the embedding: the last and the first virtual stage; or all ranks, which exchange
/// what S finds (two_barriers: and then what T makes of it) before the last stage's backward.
enum class Vocabulary { whole, one_barrier, two_barriers };

/// As the first rank's passes say.
Vocabulary vocabulary_of(const Schedule& schedule);

/// Whether there is one pipeline, and no rank shares the head and the embedding.
bool is_single_and_whole(const Schedule& schedule);

/// The tensors of each microbatch that passes wait for, by number: first the input of each hop
/// (pipeline_state.h), then three of vocabulary parallelism.
class PassInputs {
 public:
  static constexpr int kNothing = -1;
  /// Tensors beside those of hops.
  static constexpr int kMore = 3;

  explicit PassInputs(const Schedule& schedule);

  [[nodiscard]] Vocabulary vocabulary() const { return vocabulary_; }
  struct OfAction {
    int needed = kNothing;  // the tensor that an action waits for
    int made = kNothing;    // that it makes; if is_of_vocabulary(pass), together with all other ranks
  };
  /// Of a rank's actions, by chunk · kPasses + pass.
  [[nodiscard]] const OfAction* of_rank(int rank) const {
    return &of_actions_[rank * placement_.chunks() * kPasses];
  }
  [[nodiscard]] const OfAction& of(int rank, const Action& action) const {
    return of_rank(rank)[action.chunk * kPasses + static_cast<size_t>(action.pass)];
  }
  /// The rank that sums a tensor up where all ranks make it, once it reaches its first block that needs it;
  /// kNothing where one rank makes it.
  [[nodiscard]] int summed_by(int tensor) const;

 private:
  [[nodiscard]] OfAction of_vocabulary(Pass pass) const;
  [[nodiscard]] OfAction of_hop(int hop) const;
  [[nodiscard]] int stages() const { return placement_.stages(); }
  // Of all ranks: the last stage's output, the head's statistics, the gradient of the first stage's input.
  [[nodiscard]] int output() const { return 2 * stages(); }
  [[nodiscard]] int statistics() const { return 2 * stages() + 1; }
  [[nodiscard]] int input_gradient() const { return 2 * stages() + 2; }

  const Placement& placement_;
  const Vocabulary vocabulary_;
  std::vector<OfAction> of_actions_;  // by rank, chunk and pass: every action of a long schedule asks
};

}  // namespace stp
