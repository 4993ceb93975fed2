#include "stp/base/allocator.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace stp {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kOneGibibyte = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kOneGibibyte);
  mallopt(M_MMAP_THRESHOLD, kOneGibibyte);
#endif
}

}  // namespace stp
