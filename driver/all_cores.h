// Work on all cores of the machine.
#pragma once

#include <cstddef>
#include <functional>

namespace stp {

/// Calls work(0) to work(count − 1) on all cores, begun in this order, until one throws or a signal is noted.
/// Throws what the first of those that threw did; nothing at a signal.
void on_all_cores(size_t count, const std::function<void(size_t)>& work);

}  // namespace stp
