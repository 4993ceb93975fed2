// Writes a rank's list of a schedule on one chunk with vocabulary parallelism.
#pragma once

#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// A rank's list. Passes of one kind take the microbatches in order, and end with the last one.
class VocabularyRank {
 public:
  VocabularyRank(int microbatches, Pass gradients) : m_(microbatches), gradients_(gradients) {}

  void run(Pass pass) {
    if (int& next = done_[static_cast<size_t>(pass)]; next < m_)
      blocks_.emplace_back(Action{pass, 0, next++});
  }
  [[nodiscard]] int done(Pass pass) const { return done_[static_cast<size_t>(pass)]; }
  [[nodiscard]] bool left(Pass pass) const { return done(pass) < m_; }
  void run(std::initializer_list<Pass> passes, int times = 1) {
    for (int i = 0; i < times; ++i)
      for (const Pass pass : passes) run(pass);
  }
  // The last microbatch's gradients, then S of the next.
  void run_head() {
    if (done(Pass::S) > 0) run(gradients_);
    run(Pass::S);
  }
  std::vector<Block> end() {
    run({Pass::G}, m_);
    run({gradients_}, m_);
    return std::move(blocks_);
  }

 private:
  const int m_;
  const Pass gradients_;
  std::array<int, kPasses> done_{};
  std::vector<Block> blocks_;
};

}  // namespace stp
