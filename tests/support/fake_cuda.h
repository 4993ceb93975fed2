// A CUDA runtime without a device, for programs that are linked with fake_cuda.cc in place of it. It keeps to
// what CUDA promises and to no more, so that what holds here by luck alone is rare:
//   - streams go on when the host asks for an event, by turns drawn at random among those whose next step may
//   run;
//   - waiting for an event that is not recorded yet is no wait;
//   - memory holds rubbish until the stream comes to its allocation, and again from its release on; who
//     wrote behind its end is found then, and the program ended;
//   - an error stays the thread's last one until it is asked for;
//   - what is given to a stream that is captured is done by the graph's launches alone, and an event that was
//     recorded there cannot be asked for;
//   - a block has more than 48 KiB of shared memory where its kernel was given them beforehand, on that
//   device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace stp::fake_cuda {

/// What a kernel's launch would do, once `stream` comes to it.
void launch(cudaStream_t stream, std::function<void()> kernel);
/// The same for a kernel whose launch a device may refuse for its shared memory.
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> run);
/// The same; the stream stays where it is until `ready()`, which only work of other streams brings about.
void launch_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> kernel);

/// Kernels that are launched from now on, on whichever stream, stay where they are until `free()`: other
/// kernels have all multiprocessors. Until reset().
void occupy(std::function<bool()> free);

/// Back to the start: the seed of the turns; nothing held, nothing failing. Streams, events and memory stay.
void reset(uint32_t seed);
/// While held, no stream goes on.
void hold(bool held);
/// The next call of that name fails.
void fail_next(const std::string& call, cudaError_t error);
/// `look` is called at every call of that name, until reset().
void watch(const std::string& call, std::function<void()> look);
/// `look` is called at every launch of a kernel, captured ones too, until reset().
void watch_launches(std::function<void(const void* kernel)> look);
/// Device memory that is allocated and not released, in the order of the streams as far as they have come.
size_t allocated_bytes();
/// Device memory that the pool holds: what was allocated, until cudaMemPoolTrimTo.
size_t pool_bytes();
/// What a kernel declares of shared memory, in bytes; for one that was not named, what reduce_block() does.
void declare_shared(const void* kernel, size_t bytes);
/// Of the host's calls, how often the name was called.
size_t calls(const std::string& name);

}  // namespace stp::fake_cuda
