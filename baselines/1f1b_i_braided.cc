// Interleaved 1F1B with a braided steady state: shows the gain of braids without STP's order.
//
// In plain 1F1B-I the last rank's forward is followed by the backward of the same microbatch, which waits for
// it: the two cannot be braided, and an unbraided last rank would limit the throughput. One more forward in
// each rank's warm-up, for one more activation, keeps every pair apart; Megatron-LM does the same where it
// overlaps a forward's communication with a backward's compute.
#include "baselines/1f1b.h"

namespace stp {

extern const Generator schedule_1f1b_i_braided = {
    .name = "1f1b-i-braided",
    .summary = "1F1B-I with its steady state braided (for the ablation)",
    .chunks = 2,
    .any_chunks = true,
    .make =
        [](const GeneratorRequest& request) { return make_interleaved("1f1b-i-braided", request, 1, true); },
    .range = "m a multiple of p"};

}  // namespace stp
