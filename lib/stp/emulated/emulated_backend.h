// The backend `emulated`: its kernels only take time, on the machine's clock. Streams, events, queues, groups
// and messages are those of the CPU backend; tensors have addresses and no memory, and no value is computed.
#pragma once

#include <memory>

#include "stp/device/backend.h"

namespace stp::emulated {

/// Like cpu::make_backend(). options.hooks.takes says what time an op takes. A collective starts, and a
/// transfer is received, when all members have taken theirs. Nothing contends.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes* of_run = nullptr);

}  // namespace stp::emulated
