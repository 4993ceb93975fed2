// The kernels of the CPU backend.
#pragma once

#include <memory>

#include "stp/cpu/blas.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

/// `counter` must outlive the kernels.
std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter);

}  // namespace stp::cpu
