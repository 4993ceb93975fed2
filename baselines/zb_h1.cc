// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2024), in the order of its authors' quick start, a
// change to Megatron-LM's 1F1B: as many microbatches in flight as 1F1B, but rank r splits a backward if a
// rank waits for it, and defers r weight gradients, which fill its cool-down. Any m.
#include <algorithm>

#include "stp/schedule/generator.h"
#include "stp/schedule/rank_writer.h"

namespace stp {
namespace {

std::vector<Block> zb_h1_rank(int p, int m, int r) {
  RankWriter rank;
  const int warm_up = std::min(p - 1 - r, m);

  // 1. Warm-up: that of 1F1B.
  for (int i = 0; i < warm_up; ++i) rank.run(rank.forward(0));

  // 2. Steady state: one forward, one backward. The first r backwards leave their W for the cool-down, and
  // the last is split so that I leaves early. No rank waits for rank 0.
  for (int i = 0; i < m - warm_up; ++i) {
    const bool last = i == m - warm_up - 1;
    rank.run(rank.forward(0));
    rank.run(r > 0 && (i < r || last) ? rank.input_gradient(0) : rank.backward(0));
    if (last && i >= r && r > 0) rank.run(rank.weight_gradient());
  }

  // 3. Cool-down: once r weight gradients are deferred, the oldest one fills the wait for the next I.
  for (int i = m - warm_up; i < m; ++i) {
    rank.run(r > 0 ? rank.input_gradient(0) : rank.backward(0));
    if (i >= r && r > 0) rank.run(rank.weight_gradient());
  }

  // 4. The remaining weight gradients.
  for (int i = 0; i < std::min(r, m); ++i) rank.run(rank.weight_gradient());
  return rank.take();
}

}  // namespace

extern const Generator schedule_zb_h1 = {.name = "zb-h1",
                                         .summary = "1F1B that defers W to its cool-down (Zero Bubble, 2024)",
                                         .chunks = 1,
                                         .make = [](const GeneratorRequest& request) {
                                           return by_rank(request, Placement::loop(request.pp, 1),
                                                          zb_h1_rank);
                                         }};

}  // namespace stp
