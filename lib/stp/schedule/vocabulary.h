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

/// The tensors of each microbatch that passes wait for, by number: first the input of each hop
/// (pipeline_state.h), then three of vocabulary parallelism.
class PassInputs {
 public:
  static constexpr int kNothing = -1;
  /// Tensors beside those of hops.
  static constexpr int kMore = 3;

  explicit PassInputs(const Schedule& schedule);

  [[nodiscard]] Vocabulary vocabulary() const { return vocabulary_; }
  /// The tensor that an action of `rank` waits for.
  [[nodiscard]] int needed(int rank, const Action& action) const {
    return action.pass == Pass::W          ? kNothing
           : is_of_vocabulary(action.pass) ? needed_of_vocabulary(action.pass)
                                           : hop(rank, action);
  }
  /// The rank that sums a tensor up where all ranks make it, once it reaches its first block that needs it;
  /// kNothing where one rank makes it.
  [[nodiscard]] int summed_by(int tensor) const;
  /// The tensor that it makes; if is_of_vocabulary(action.pass), together with all other ranks.
  [[nodiscard]] int made(int rank, const Action& action) const {
    if (action.pass == Pass::W) return kNothing;
    if (is_of_vocabulary(action.pass)) return made_of_vocabulary(action.pass);
    const int next = hop(rank, action) + 1;
    if (vocabulary_ == Vocabulary::whole) return next;  // behind the last backward nothing waits for it
    return next == stages() ? output() : next == 2 * stages() ? input_gradient() : next;
  }

 private:
  [[nodiscard]] int hop(int rank, const Action& action) const {
    return hops_[(rank * placement_.chunks() + action.chunk) * 2 + is_backward(action.pass)];
  }
  [[nodiscard]] int needed_of_vocabulary(Pass pass) const;
  [[nodiscard]] int made_of_vocabulary(Pass pass) const;
  [[nodiscard]] int stages() const { return placement_.stages(); }
  // Of all ranks: the last stage's output, the head's statistics, the gradient of the first stage's input.
  [[nodiscard]] int output() const { return 2 * stages(); }
  [[nodiscard]] int statistics() const { return 2 * stages() + 1; }
  [[nodiscard]] int input_gradient() const { return 2 * stages() + 2; }

  const Placement& placement_;
  const Vocabulary vocabulary_;
  std::vector<int> hops_;  // by rank, chunk and direction: every pass of a long schedule asks
};

}  // namespace stp
