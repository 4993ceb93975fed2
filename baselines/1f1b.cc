// 1F1B (PipeDream-Flush; Narayanan et al. 2021): as many forwards as fill the pipeline, one for each later
// rank, then one forward and one backward alternately. Any m.
#include "baselines/1f1b.h"

namespace stp {

extern const Generator schedule_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward (Megatron-LM)",
    .chunks = 1,
    .make =
        [](const GeneratorRequest& request) {
          return by_rank(request, Placement::loop(request.pp, 1), [](int p, int m, int r) {
            return one_forward_one_backward(m, std::min(p - 1 - r, m));
          });
        },
    .built_into = {"megatron", "pytorch"}};

}  // namespace stp
