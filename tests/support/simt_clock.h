// A clock for kernels on the host: it moves when it is read, and shows each reading to the test.
#pragma once

#include <cstdint>
#include <functional>

namespace stp::simt {

inline uint64_t clock_ns = 0;
/// By how much a reading moves it.
inline uint64_t clock_step_ns = 100;
/// Called with each reading.
inline std::function<void(uint64_t now)> clock_read;

}  // namespace stp::simt

namespace stp::cuda {

inline uint64_t nanoseconds() {
  simt::clock_ns += simt::clock_step_ns;
  if (simt::clock_read) simt::clock_read(simt::clock_ns);
  return simt::clock_ns;
}

}  // namespace stp::cuda
