// V-Half (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): half of 1F1B's memory on every
// rank, for a bubble of about half of 1F1B's. Forwards go down the ranks at half speed, two slots a rank, and
// up at full speed; backwards too. Any m and p.
#include "baselines/v_pattern.h"

namespace stp {

extern const Generator schedule_v_half = {
    .name = "v-half",
    .summary = "half of 1F1B's memory, V placement (Controllable Memory, 2024)",
    .chunks = 2,
    .make = [](const GeneratorRequest& request) {
      const int p = request.pp;
      const int gap = p % 2 == 0 ? 3 : 0;  // without it two steps would share a slot
      v_pattern::Pattern pattern;
      for (int r = 0; r < p; ++r)
        pattern.push_back({2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r});
      return v_pattern::make(pattern, request.microbatches);
    }};

}  // namespace stp
