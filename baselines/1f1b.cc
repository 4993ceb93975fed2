// 1F1B (PipeDream-Flush; Narayanan et al. 2021): as many forwards as fill the pipeline, then one forward and
// one backward alternately. Any m.
#include <algorithm>

#include "stp/schedule/generator.h"

namespace stp {
namespace {

Schedule make_1f1b(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  Schedule schedule{"1f1b", Placement::loop(p, 1), m, {}};
  for (int r = 0; r < p; ++r) {
    std::vector<Block> blocks;
    const int warm_up = std::min(p - 1 - r, m);

    // 1. Warm-up: a forward for each later rank.
    for (int i = 0; i < warm_up; ++i) blocks.emplace_back(Action{Pass::F, 0, i});

    // 2. Steady state: one forward, one backward.
    for (int i = warm_up; i < m; ++i) {
      blocks.emplace_back(Action{Pass::F, 0, i});
      blocks.emplace_back(Action{Pass::B, 0, i - warm_up});
    }

    // 3. Cool-down: the remaining backwards.
    for (int i = m - warm_up; i < m; ++i) blocks.emplace_back(Action{Pass::B, 0, i});
    schedule.ranks.push_back(std::move(blocks));
  }
  return schedule;
}

}  // namespace

extern const Generator schedule_1f1b = {.name = "1f1b",
                                        .summary = "one forward, one backward (Megatron-LM)",
                                        .chunks = 1,
                                        .make = make_1f1b,
                                        .built_into = {"megatron", "pytorch"}};

}  // namespace stp
