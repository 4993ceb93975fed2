// The clock of the kernels. Tests on the host replace it.
#pragma once

#ifdef STP_KERNELS_ON_HOST
#include "support/simt_clock.h"
#else
#include <cuda_runtime.h>

#include <cstdint>

namespace stp::cuda {

/// Nanoseconds, the same on all multiprocessors; it moves in steps of up to a microsecond.
__device__ inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now)::"memory");
  return now;
}

}  // namespace stp::cuda
#endif
