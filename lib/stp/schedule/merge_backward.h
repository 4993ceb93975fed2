// A pass from schedule to schedule: adjacent I and W become one full backward.
#pragma once

#include "stp/schedule/schedule.h"

namespace stp {

/// Every I, in a block of its own, whose W follows at once in one of its own becomes a B, as
/// `merge_consecutive_bw` of sail-sg's zero-bubble runtime did (scheduler/passes.py). A full backward hides
/// its all-reduces behind its weight gradients; but where outputs leave at a block's end, its gradient leaves
/// later. A valid schedule stays valid: nothing waits for a W, and it waits for nothing but its I.
Schedule merge_backward(Schedule schedule);

}  // namespace stp
