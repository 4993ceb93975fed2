// V-Min (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): a third of 1F1B's memory on every
// rank, for a bubble of about two thirds of 1F1B's. All steps go at full speed, one slot a rank, so there is
// no slack for transfers or passes of unequal length: with these the bubble grows with m. Any m and p.
#include "baselines/v_pattern.h"

namespace stp {

extern const Generator schedule_v_min = {
    .name = "v-min",
    .summary = "a third of 1F1B's memory, V placement (Controllable Memory, 2024)",
    .chunks = 2,
    .make = [](const GeneratorRequest& request) {
      const int p = request.pp;
      const int gap = p % 3 == 0 ? 2 : 0;  // without it two steps would share a slot
      v_pattern::Pattern pattern;
      for (int r = 0; r < p; ++r) pattern.push_back({r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p - 1 + gap - r});
      return v_pattern::make(pattern, request.microbatches);
    }};

}  // namespace stp
