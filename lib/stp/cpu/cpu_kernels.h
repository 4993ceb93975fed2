// The kernels of the CPU backend.
#pragma once

#include <functional>
#include <memory>

#include "stp/cpu/blas.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

/// `counter` must outlive the kernels. `spoils`: asked after each GEMM, see OpHooks; empty: never.
std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter, std::function<bool()> spoils = {});

}  // namespace stp::cpu
