// Interleaved 1F1B, as Megatron-LM runs it.
#include "baselines/interleaved.h"

namespace stp {
namespace {

Schedule make_1f1b_i(const GeneratorRequest& request) {
  return make_interleaved("1f1b-i", request, {.further_warm_up = 0, .braided = false});
}

}  // namespace

extern const Generator schedule_1f1b_i = {.name = "1f1b-i",
                                          .summary = "interleaved 1F1B, several chunks a rank (Megatron-LM)",
                                          .chunks = 2,
                                          .any_chunks = true,
                                          .make = make_1f1b_i,
                                          .range = "m a multiple of p",
                                          .built_into = {"megatron", "pytorch"}};

}  // namespace stp
