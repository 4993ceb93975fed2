// Kernels on the host (simt.h), launched on the streams of the fake runtime: they run when their stream comes
// to them. To be included before a .cu file.
#pragma once

#define start start_at_once
#include "support/simt.h"
#undef start

#include "support/fake_cuda.h"

namespace stp::cuda {

template <typename... Parameters, typename... Arguments>
void start(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
           Arguments... arguments) {
  fake_cuda::launch(stream, [=] { start_at_once(kernel, shape, nullptr, arguments...); });
}

}  // namespace stp::cuda
