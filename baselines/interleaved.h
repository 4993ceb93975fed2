// Interleaved 1F1B (Narayanan et al. 2021), in Megatron-LM's order with its default group of p microbatches.
// Any number of chunks v. m must be a multiple of p, as Megatron requires for that group.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stp/base/error.h"
#include "stp/schedule/generator.h"

namespace stp {

/// Parameters that distinguish the interleaved schedules.
struct Interleaving {
  int further_warm_up;  // forwards of a rank's warm-up beyond those that fill the pipeline
  bool braided;         // a forward of the steady state and the next backward are one block
};

inline Schedule make_interleaved(const std::string& name, const GeneratorRequest& request,
                                 const Interleaving& interleaving) {
  const int p = request.pp, m = request.microbatches, v = request.chunks;
  if (m % p != 0)
    throw InputError("", "microbatches",
                     name + " runs microbatches in groups of p, so m must be a multiple of " +
                         std::to_string(p) + ", not " + std::to_string(m),
                     "use " + std::to_string((m / p + 1) * p));

  // The k-th forward of every rank: groups of p microbatches go through all chunks in order. The k-th
  // backward goes through the chunks in reverse.
  const auto forward = [=](int k) {
    const int chunk = k / p % v;
    return Action{Pass::F, static_cast<int16_t>(chunk), k / (p * v) * p + k % p};
  };
  const auto backward = [=](int k) {
    Action action = forward(k);
    return Action{Pass::B, static_cast<int16_t>(v - 1 - action.chunk), action.microbatch};
  };

  Schedule schedule{name, Placement::loop(p, v), m, {}};
  for (int r = 0; r < p; ++r) {
    std::vector<Block> blocks;
    const int warm_up = std::min(2 * (p - r - 1) + (v - 1) * p + interleaving.further_warm_up, v * m);

    // 1. Warm-up.
    for (int k = 0; k < warm_up; ++k) blocks.emplace_back(forward(k));

    // 2. Steady state: one forward, one backward.
    for (int k = warm_up; k < v * m; ++k) {
      if (interleaving.braided) {
        blocks.emplace_back(forward(k), backward(k - warm_up));
      } else {
        blocks.emplace_back(forward(k));
        blocks.emplace_back(backward(k - warm_up));
      }
    }

    // 3. Cool-down.
    for (int k = v * m - warm_up; k < v * m; ++k) blocks.emplace_back(backward(k));
    schedule.ranks.push_back(std::move(blocks));
  }
  return schedule;
}

}  // namespace stp
