// The interface to an accelerator, after CUDA's model: in-order streams, events between them, memory that is
// allocated and released in stream order. One folder beside this one per backend.
//
// All calls come from one thread of the process, which issues the work of all ranks that the process drives,
// in an order in which nothing waits for what is issued later. None of them waits for the device, save
// synchronize(), download() and a full queue; what they are given is used later, in the order of the calls on
// each stream.
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

/// One rank's.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) = 0;

  /// Uninitialised. Throws std::runtime_error where the memory limit would be passed.
  Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns);
  /// From here on `tensor` counts as `kind`.
  void retag(const Tensor& tensor, MemoryKind kind);
  /// Gives the memory back once the stream comes here. `tensor` becomes empty; the caller sees to it that no
  /// work of other streams still uses it.
  void release(Stream& stream, Tensor& tensor);
  [[nodiscard]] MemoryTracker& memory() { return tracker_; }

  /// Copies `bytes`, which need not live on, to the start of `tensor`.
  virtual void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
  /// Waits for the stream, then copies the start of `tensor` to `bytes`.
  virtual void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) = 0;
  /// Waits for all streams of the device. Throws Cancelled if the run failed.
  virtual void synchronize() = 0;

  virtual Kernels& kernels() = 0;
  /// Of the kernels' calls so far, the share that reached the device as graphs (BackendOptions::graphs); none
  /// where there are no graphs. After synchronize().
  [[nodiscard]] virtual std::optional<double> share_in_graphs() { return std::nullopt; }
  /// From now on what streams do is timed piece by piece, which slows them down. False where the device
  /// cannot.
  virtual bool time_kernels(bool on) {
    static_cast<void>(on);
    return false;
  }
  /// Seconds of what was timed since this was last asked, each piece's own, added up. After synchronize().
  virtual double take_kernel_seconds() { return 0; }

 protected:
  /// `memory_limit`: most bytes, 0: none; `poison`: fresh and released memory is filled with NaN, for tests.
  Device(size_t memory_limit, bool poison);

  /// Memory that the device's streams can use, and its end; see CachingAllocator.
  virtual std::byte* take_memory(size_t bytes) = 0;
  virtual void free_memory(std::byte* at) = 0;
  /// Fills `bytes` with what is NaN in every type, in the stream's order.
  virtual void fill_with_nan(Stream& stream, std::byte* at, size_t bytes) = 0;
  /// To be called when the device is done with everything.
  void trim_memory() { blocks_.trim(); }
  /// To be called before a derived class ends: take_memory() and free_memory() are its own.
  void free_blocks() { blocks_.clear(); }

 private:
  const bool poison_;
  MemoryTracker tracker_;
  CachingAllocator blocks_;
};

/// Throws std::logic_error if the tensor is empty, released, or smaller than `bytes`.
void check_holds(const Tensor& tensor, size_t bytes);

}  // namespace stp
