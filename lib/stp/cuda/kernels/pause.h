// A kernel that only takes time.
#pragma once

#include "stp/device/stream.h"

namespace stp::cuda {

/// What is given to `stream` from now on starts at least so many nanoseconds after what was given before has
/// ended. One warp waits, by the device's clock.
void pause(Stream& stream, uint64_t nanoseconds);

}  // namespace stp::cuda
