// The backend `emulated`: its kernels only take time, on the machine's clock. Streams, events, queues, groups
// and messages are those of the CPU backend; tensors have addresses and no memory, and no value is computed.
#pragma once

#include <functional>
#include <memory>

#include "stp/device/backend.h"

namespace stp::emulated {

/// Like cpu::make_backend(). What takes time is said by options.hooks, mostly take_seconds().
std::unique_ptr<Backend> make_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes& processes);

/// Hooks by which an op holds its stream for seconds(rank, op) from its start on. A collective starts, and a
/// transfer is received, when all members have taken that time. Nothing contends.
OpHooks take_seconds(std::function<double(int rank, uint32_t op)> seconds);

}  // namespace stp::emulated
