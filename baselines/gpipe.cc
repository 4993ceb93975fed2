// GPipe (Huang et al. 2019): all forwards, then all backwards, which is 1F1B with a warm-up of all m. The
// backwards come in the order of the forwards, as in PyTorch; GPipe's own figure has the last microbatch
// first, which takes as long. Any m; every rank holds the activations of m microbatches.
#include "baselines/1f1b.h"

namespace stp {

extern const Generator schedule_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards (GPipe, 2019)",
    .chunks = 1,
    .make =
        [](const GeneratorRequest& request) {
          return by_rank(request, Placement::loop(request.pp, 1),
                         [](int /*p*/, int m, int /*r*/) { return one_forward_one_backward(m, m); });
        },
    .built_into = {"pytorch"}};

}  // namespace stp
