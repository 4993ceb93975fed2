// What all ranks of a schedule repeat: a run of blocks that comes again and again, for later microbatches.
#pragma once

#include <optional>

#include "stp/schedule/schedule.h"

namespace stp {

/// A schedule without some repetitions. Two remain; the others would stand between them. On each rank these
/// two begin with the forwards on chunk 0 of microbatches `first` and `first + period`, and the second ends
/// before that of `first + 2 · period`.
struct Shortened {
  Schedule schedule;
  int left_out;       // repetitions
  int first, period;  // microbatches
};

/// The repetitions begin at microbatch `first` and have at least p and `first` / 2 microbatches, so that
/// each waits only for the one before. None if less than half of the schedule would be left out. Run time:
/// O(blocks).
std::optional<Shortened> shorten(const Schedule& schedule, int first);

}  // namespace stp
