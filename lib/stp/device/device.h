// The interface to an accelerator, after CUDA's model: in-order streams, events between them, and memory that
// is allocated and released in stream order. Each backend has its own folder.
//
// One thread of the process makes all calls. It issues the work of all ranks that the process drives, in an
// order in which no work waits for later work. Only synchronize(), download() and a full queue wait for the
// device. Other calls return at once; their arguments are used later, in the order of the calls on each
// stream.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

  /// Returns uninitialised memory. Throws OutOfMemory, and counts nothing, if there is too little.
  Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns);
  /// Counts `tensor` as `kind` from now on.
  void retag(const Tensor& tensor, MemoryKind kind);
  /// Frees the memory once the stream reaches this point, and empties `tensor`. The caller ensures that no
  /// other stream still uses it.
  void release(Stream& stream, Tensor& tensor);
  [[nodiscard]] MemoryTracker& memory() { return tracker_; }

  /// Copies `bytes`, which may be freed after the call, to the start of `tensor`.
  virtual void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
  /// Waits for the stream, then copies the start of `tensor` to `bytes`.
  virtual void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) = 0;
  /// Waits for all streams of the device. Throws Cancelled if the run failed.
  virtual void synchronize() = 0;

  /// Delays later work of `stream` by `seconds` of the device's time, if the device can (CUDA).
  virtual void pause(Stream& /*stream*/, double /*seconds*/) {}

  virtual Kernels& kernels() = 0;
  /// The share of kernel calls so far that ran as graphs (BackendOptions::graphs); none without graphs. Call
  /// after synchronize().
  [[nodiscard]] virtual std::optional<double> share_in_graphs() { return std::nullopt; }
  /// Switches the timing of each piece of work, which slows the streams down. False if not possible.
  virtual bool time_kernels(bool on) {
    static_cast<void>(on);
    return false;
  }
  /// The total time of all pieces of work since the last call. Call after synchronize().
  virtual double take_kernel_seconds() { return 0; }

 protected:
  /// `memory_limit`: in bytes, 0: none. `poison`: fill fresh and released memory with NaN, for tests.
  Device(size_t memory_limit, bool poison);

  /// Allocates and frees memory for the device's streams; see CachingAllocator.
  virtual std::byte* take_memory(size_t bytes) = 0;
  virtual void free_memory(std::byte* at) = 0;
  /// The same for host memory, MemoryKind::host.
  virtual std::byte* take_host_memory(size_t bytes) = 0;
  virtual void free_host_memory(std::byte* at) = 0;
  /// Fills memory with a bit pattern that is NaN in every type, in the stream's order.
  virtual void fill_with_nan(Stream& stream, std::byte* at, size_t bytes) = 0;
  /// Call when the device has finished all work.
  void trim_memory() {
    blocks_.trim();
    host_blocks_.trim();
  }
  /// Call in a derived class's destructor: take_memory() and free_memory() belong to that class.
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

// For set-up and inspection, not for steps.

/// Downloads all elements of `tensor`, whose type T has.
template <typename T>
std::vector<T> download(Device& device, Stream& stream, const Tensor& tensor) {
  std::vector<T> elements(static_cast<size_t>(tensor.elements()));
  device.download(stream, tensor, std::as_writable_bytes(std::span(elements)));
  return elements;
}
/// Downloads elements of any type but i32 as doubles; uploads doubles, rounded. An upload repeats values if
/// there are fewer than elements.
std::vector<double> download_doubles(Device& device, Stream& stream, const Tensor& tensor);
void upload_doubles(Device& device, Stream& stream, const Tensor& tensor, const std::vector<double>& values);

}  // namespace stp
