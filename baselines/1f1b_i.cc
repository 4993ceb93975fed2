// Interleaved 1F1B, as Megatron-LM runs it.
#include "baselines/1f1b.h"

namespace stp {

extern const Generator schedule_1f1b_i = {
    .name = "1f1b-i",
    .summary = "interleaved 1F1B, several chunks a rank (Megatron-LM)",
    .chunks = 2,
    .any_chunks = true,
    .make = [](const GeneratorRequest& request) { return make_interleaved("1f1b-i", request, 0, false); },
    .range = "m a multiple of p",
    .built_into = {"megatron", "pytorch"}};

}  // namespace stp
