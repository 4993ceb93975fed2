// ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", 2024): up to 2p − 1 microbatches in flight instead of
// 1F1B's p, so that the first backward returns before the warm-up ends. Every backward is split; the memory
// that a rank's warm-up does not use holds deferred weight gradients, which end the iteration. The order is
// written from the paper's figure. Any m; the bubble of the paper from m = 2p − 1 on.
#include <algorithm>

#include "stp/schedule/generator.h"

namespace stp {

extern const Generator schedule_zb_h2 = {
    .name = "zb-h2",
    .summary = "ZB-H1 with twice the memory and less bubble (Zero Bubble, 2024)",
    .chunks = 1,
    .make = [](const GeneratorRequest& request) {
      return by_rank(request, Placement::loop(request.pp, 1), [](int p, int m, int r) {
        std::vector<Block> blocks;
        const auto run = [&](Pass pass, int microbatch) { blocks.emplace_back(Action{pass, 0, microbatch}); };
        const int warm_up = std::min(2 * (p - r) - 1, m);
        const int deferred = std::min(2 * p - 1, m) - warm_up;

        // 1. Warm-up: as many forwards as a microbatch's path to the last rank and back has hops.
        for (int i = 0; i < warm_up; ++i) run(Pass::F, i);

        // 2. The first backwards defer their W. Then I, W and F in turn, and I and W when no F is left.
        for (int i = 0; i < m; ++i) {
          run(Pass::I, i);
          if (i >= deferred) run(Pass::W, i - deferred);
          if (warm_up + i < m) run(Pass::F, warm_up + i);
        }

        // 3. The deferred weight gradients.
        for (int i = m - deferred; i < m; ++i) run(Pass::W, i);
        return blocks;
      });
    }};

}  // namespace stp
