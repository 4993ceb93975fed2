// The interface to an accelerator, after CUDA's model: in-order streams, events between them, memory that is
// allocated and given back in stream order. One folder below this one per backend.
//
// All calls come from one host thread per rank. None of them waits for the device, save synchronize(),
// download() and a full queue; what they are given is used later, in the order of the calls on each stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stp/device/memory_ledger.h"
#include "stp/device/tensor.h"

namespace stp {

class Kernels;

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// Seconds on the device's clock when the stream passed it. Only after the stream was synchronised.
  [[nodiscard]] virtual double seconds() const = 0;
};
using EventRef = std::shared_ptr<Event>;

class Stream {
 public:
  virtual ~Stream() = default;
  /// The event after all work given to this stream so far.
  virtual EventRef record() = 0;
  /// Work given to this stream from now on starts after `event`, which may be of another stream, and was
  /// recorded before this call.
  virtual void wait(const EventRef& event) = 0;
  /// What the work given from now on is for; failures name it. See Device::describe_with.
  virtual void begin(uint32_t op) = 0;
};

enum class StreamPriority { compute, communication };

class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) = 0;
  /// Uninitialised; fails the run where the memory limit would be passed.
  virtual Tensor allocate(Stream& stream, MemoryKind kind, DType type, int64_t rows, int64_t columns) = 0;
  /// From here on in the stream's order, `tensor` counts as `kind`.
  virtual void retag(Stream& stream, const Tensor& tensor, MemoryKind kind) = 0;
  /// Gives the memory back once the stream comes here. `tensor` becomes empty; the caller sees to it that no
  /// work of other streams still uses it.
  virtual void release(Stream& stream, Tensor& tensor) = 0;
  /// Copies `bytes`, which need not live on, to the start of `tensor`.
  virtual void upload(Stream& stream, const Tensor& tensor, std::span<const std::byte> bytes) = 0;
  /// Waits for the stream, then copies the start of `tensor` to `bytes`.
  virtual void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) = 0;
  /// Waits for all streams of the device. Throws Stopped if the run failed.
  virtual void synchronize() = 0;

  virtual Kernels& kernels() = 0;
  virtual MemoryLedger& memory() = 0;
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
};

}  // namespace stp
