// What all ranks of a schedule repeat: a run of blocks that comes again and again, for later microbatches.
#pragma once

#include <optional>

#include "stp/schedule/schedule.h"

namespace stp {

/// A schedule from which repetitions were taken out, as if between two that remain. On each rank these begin
/// with the forwards on chunk 0 of the microbatches `first` and `first + period`, and the second ends before
/// that of `first + 2 · period`.
struct Shortened {
  Schedule schedule;
  int left_out;       // repetitions
  int first, period;  // microbatches
};

/// The repetitions begin at microbatch `first` and are no shorter than p or half of it, so that what they
/// wait for is in the one before. None: what is left out would not be half of the schedule. Run time:
/// O(blocks).
std::optional<Shortened> shorten(const Schedule& schedule, int first);

}  // namespace stp
