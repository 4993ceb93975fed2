// The interface to an accelerator, after CUDA's model: in-order streams, events between them, memory that is
// allocated and released in stream order. Each backend has its own folder.
//
// All calls come from one thread of the process, which issues the work of all ranks that the process drives,
// in an order in which no work waits for work issued later. Only synchronize(), download() and a full queue
// wait for the device; other calls return at once, and their arguments are used later, in the order of the
// calls on each stream.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "stp/device/caching_allocator.h"
#include "stp/device/memory_tracker.h"
#include "stp/device/stream.h"
#include "stp/device/tensor.h"

namespace stp {

class Kernels;

/// One rank's device.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) = 0;

  /// Uninitialised. Throws std::runtime_error if the memory limit would be exceeded.
  Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns);
  /// From here on `tensor` counts as `kind`.
  void retag(const Tensor& tensor, MemoryKind kind);
  /// Frees the memory once the stream reaches this point. `tensor` becomes empty; the caller ensures that no
  /// other stream still uses it.
  void release(Stream& stream, Tensor& tensor);
  [[nodiscard]] MemoryTracker& memory() { return tracker_; }

  /// Copies `bytes`, which may be freed after the call, to the start of `tensor`.
  virtual void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
  /// Waits for the stream, then copies the start of `tensor` to `bytes`.
  virtual void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) = 0;
  /// Waits for all streams of the device. Throws Cancelled if the run failed.
  virtual void synchronize() = 0;
  /// Delays work given to `stream`, the compute stream, from now on by BackendOptions::hold_compute_us: a
  /// collective given to another stream before gets the device first. By default there is no delay.
  virtual void hold_compute(Stream& stream) { static_cast<void>(stream); }

  virtual Kernels& kernels() = 0;
  /// The share of the kernels' calls so far that ran as graphs (BackendOptions::graphs); none if there are no
  /// graphs. After synchronize().
  [[nodiscard]] virtual std::optional<double> share_in_graphs() { return std::nullopt; }
  /// From now on times each piece of work on the streams, which slows them down. False if the device cannot.
  virtual bool time_kernels(bool on) {
    static_cast<void>(on);
    return false;
  }
  /// The sum of the times of all pieces of work since the last call. After synchronize().
  virtual double take_kernel_seconds() { return 0; }

 protected:
  /// `memory_limit`: in bytes, 0: none; `poison`: fresh and released memory is filled with NaN, for tests.
  Device(size_t memory_limit, bool poison);

  /// Allocates and frees memory that the device's streams can use; see CachingAllocator.
  virtual std::byte* take_memory(size_t bytes) = 0;
  virtual void free_memory(std::byte* at) = 0;
  /// The same of the host's memory, for kind `host`.
  virtual std::byte* take_host_memory(size_t bytes) = 0;
  virtual void free_host_memory(std::byte* at) = 0;
  /// Fills memory with a bit pattern that is NaN in every type, in the stream's order.
  virtual void fill_with_nan(Stream& stream, std::byte* at, size_t bytes) = 0;
  /// To be called when the device has finished all work.
  void trim_memory() {
    blocks_.trim();
    host_blocks_.trim();
  }
  /// To be called by a derived class's destructor, since take_memory() and free_memory() are its own.
  void free_blocks() {
    blocks_.clear();
    host_blocks_.clear();
  }

 private:
  const bool poison_;
  MemoryTracker tracker_;
  CachingAllocator blocks_, host_blocks_;

  CachingAllocator& blocks_of(MemoryKind kind) { return kind == MemoryKind::host ? host_blocks_ : blocks_; }
};

/// Throws std::logic_error if the tensor is empty, released, or smaller than `bytes`.
void check_holds(const Tensor& tensor, size_t bytes);

}  // namespace stp
