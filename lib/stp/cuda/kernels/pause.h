// A kernel that only takes time.
#pragma once

#include "stp/device/stream.h"

namespace stp::cuda {

/// Delays `stream`: later work starts at least `nanoseconds` after earlier work has ended. One warp waits, by
/// the device's clock.
void pause(Stream& stream, uint64_t nanoseconds);

}  // namespace stp::cuda
