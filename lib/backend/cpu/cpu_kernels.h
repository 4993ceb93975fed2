// The kernels of the CPU backend.
#pragma once

#include <memory>

#include "stp/backend/kernels.h"
#include "stp/cpu/blas_counter.h"

namespace stp {

/// `counter` outlives them.
std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter);

}  // namespace stp
