// What the kernels of one device count of their BLAS calls.
#pragma once

#include <atomic>

namespace stp::cpu {

/// Added to by all streams of a device; see blas_use in cpu_backend.h.
struct BlasCounter {
  std::atomic<double> seconds{0}, flops{0};

  void add(double more_seconds, double more_flops) {
    seconds.fetch_add(more_seconds, std::memory_order_relaxed);
    flops.fetch_add(more_flops, std::memory_order_relaxed);
  }
};

}  // namespace stp::cpu
