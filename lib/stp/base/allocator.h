// How the process's allocator treats freed memory.
#pragma once

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace stp {

/// Keeps freed memory in the process. Configurations are processed one after the other, each with vectors of
/// megabytes; returning their pages to the system and having them zeroed again costs up to a quarter of the
/// time. To be called at the start of a program; does nothing where the C library is not glibc.
inline void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kOneGibibyte = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kOneGibibyte);
  mallopt(M_MMAP_THRESHOLD, kOneGibibyte);
#endif
}

}  // namespace stp
