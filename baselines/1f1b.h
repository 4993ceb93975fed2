// One forward and one backward in turn (Narayanan et al. 2021), on one chunk or interleaved on several.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "stp/base/error.h"
#include "stp/schedule/generator.h"

namespace stp {

/// A rank's list of `count` forwards and as many backwards; forward(k) and backward(k) give the k-th.
/// `braided`: a forward of the steady state and the next backward are one block.
template <typename Forward, typename Backward>
std::vector<Block> one_forward_one_backward(int count, int warm_up, const Forward& forward,
                                            const Backward& backward, bool braided = false) {
  std::vector<Block> blocks;

  // 1. Warm-up.
  for (int k = 0; k < warm_up; ++k) blocks.emplace_back(forward(k));

  // 2. Steady state: one forward, one backward.
  for (int k = warm_up; k < count; ++k) {
    if (braided) {
      blocks.emplace_back(forward(k), backward(k - warm_up));
    } else {
      blocks.emplace_back(forward(k));
      blocks.emplace_back(backward(k - warm_up));
    }
  }

  // 3. Cool-down: the remaining backwards.
  for (int k = count - warm_up; k < count; ++k) blocks.emplace_back(backward(k));
  return blocks;
}
/// The same on one chunk, of m microbatches in order.
inline std::vector<Block> one_forward_one_backward(int m, int warm_up) {
  return one_forward_one_backward(
      m, warm_up,
      [](int i) {
        return Action{Pass::F, 0, i};
      },
      [](int i) {
        return Action{Pass::B, 0, i};
      });
}

/// Interleaved 1F1B, in Megatron-LM's order with its default group of p microbatches. Any number of chunks v.
/// m must be a multiple of p, as Megatron requires for that group. `further_warm_up`: forwards of a rank's
/// warm-up beyond those that fill the pipeline.
inline Schedule make_interleaved(const char* name, const GeneratorRequest& request, int further_warm_up,
                                 bool braided) {
  const int p = request.pp, m = request.microbatches, v = request.chunks;
  if (m % p != 0)
    throw InputError("", "microbatches",
                     std::string(name) + " runs microbatches in groups of p, so m must be a multiple of " +
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
  return by_rank(request, Placement::loop(p, v), [&](int, int, int r) {
    const int warm_up = std::min(2 * (p - r - 1) + (v - 1) * p + further_warm_up, v * m);
    return one_forward_one_backward(v * m, warm_up, forward, backward, braided);
  });
}

}  // namespace stp
