// A pass from schedule to schedule: adjacent I and W become a full backward.
#pragma once

#include "stp/schedule/schedule.h"

namespace stp {

/// Joins I and W to one B if each is a block by itself and W directly follows its I, as
/// `merge_consecutive_bw` of sail-sg's zero-bubble runtime did (scheduler/passes.py). A full backward hides
/// its all-reduces behind its weight gradients. If outputs leave at a block's end, its gradient leaves later.
/// A valid schedule stays valid: nothing waits for a W, and W waits only for its I.
Schedule merge_backward(Schedule schedule);

}  // namespace stp
