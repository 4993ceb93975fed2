// Writes a rank's list, for generators with one or two chunks per rank.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// One rank's list and its counters: the next forward and the next backward of each chunk, and the queue of
/// deferred weight gradients, first-in first-out over both chunks.
class RankWriter {
 public:
  Action forward(int chunk) { return action(Pass::F, chunk, next_forward_[chunk]++); }
  Action backward(int chunk) { return action(Pass::B, chunk, next_backward_[chunk]++); }
  Action input_gradient(int chunk) {
    const Action input = action(Pass::I, chunk, next_backward_[chunk]++);
    weights_.push_back(action(Pass::W, chunk, input.microbatch));
    return input;
  }
  /// Takes the oldest deferred weight gradient; there must be one.
  Action weight_gradient() { return weights_[next_weight_++]; }

  /// Adds a block. A braid is run({forward(0), backward(1)}): braces are evaluated from left to right.
  void run(const Block& block) { blocks_.push_back(block); }
  std::vector<Block> take() { return std::move(blocks_); }

 private:
  static Action action(Pass pass, int chunk, int microbatch) {
    return {pass, static_cast<int16_t>(chunk), microbatch};
  }

  std::array<int, 2> next_forward_{}, next_backward_{};
  std::vector<Action> weights_;  // of all split backwards
  size_t next_weight_ = 0;
  std::vector<Block> blocks_;
};

/// The warm-up on rank r of p, for schedules that braid on the V placement: forwards down the V, then
/// forwards of both chunks in turn.
inline void warm_up(RankWriter& rank, int p, int r) {
  for (int i = 0; i < 2 * (p - r - 1); ++i) rank.run(rank.forward(0));
  for (int i = 0; i < r + 1; ++i) {
    rank.run(rank.forward(0));
    rank.run(rank.forward(1));
  }
}

}  // namespace stp
