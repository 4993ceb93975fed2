// What lower() refuses.
#pragma once

#include <vector>

#include "stp/program/lower.h"

namespace stp {

/// Throws InputError if the layers do not suit the schedule, or the schedule is not built with an option.
void check_lowering(const Schedule& schedule, const std::vector<int>& layers_per_stage,
                    const Lowering& lowering);

}  // namespace stp
