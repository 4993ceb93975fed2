// How a generator of two chunks a rank writes a rank's list.
#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "stp/schedule/action.h"

namespace stp {

/// One rank's list, written with the counters that such methods think in: the next forward and the next
/// backward of each chunk, and the queue of weight gradients put off, first-in first-out over both chunks.
class RankWriter {
 public:
  Action forward(int chunk) { return action(Pass::F, chunk, next_forward_[chunk]++); }
  Action backward(int chunk) { return action(Pass::B, chunk, next_backward_[chunk]++); }
  Action input_gradient(int chunk) {
    const Action input = action(Pass::I, chunk, next_backward_[chunk]++);
    pending_.push_back(action(Pass::W, chunk, input.microbatch));
    return input;
  }
  /// The oldest weight gradient put off; there must be one.
  Action weight_gradient() {
    const Action weight = pending_.front();
    pending_.pop_front();
    return weight;
  }

  void run(Action only) { blocks_.emplace_back(only); }
  void braid(Action first, Action second) { blocks_.emplace_back(first, second); }
  std::vector<Block> take() { return std::move(blocks_); }

 private:
  static Action action(Pass pass, int chunk, int microbatch) {
    return {pass, static_cast<int16_t>(chunk), microbatch};
  }

  std::array<int, 2> next_forward_{}, next_backward_{};
  std::deque<Action> pending_;
  std::vector<Block> blocks_;
};

}  // namespace stp
