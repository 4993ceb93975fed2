// The treatment of freed memory by the process's allocator.
#pragma once

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace stp {

/// Keeps freed memory in the process. Each configuration uses vectors of megabytes; returning and zeroing
/// their pages every time costs up to a quarter of the time. Call it at the start of a program. It does
/// nothing without glibc.
inline void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kOneGibibyte = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kOneGibibyte);
  mallopt(M_MMAP_THRESHOLD, kOneGibibyte);
#endif
}

}  // namespace stp
