// In-order queues of work on a device, and events between them.
#pragma once

#include <cstdint>
#include <memory>

namespace stp {

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// When the stream passed it, in seconds of the device's clock. Only after the stream was synchronised.
  [[nodiscard]] virtual double seconds() const = 0;
};
using EventRef = std::shared_ptr<Event>;

enum class StreamPriority { compute, communication };

class Stream {
 public:
  virtual ~Stream() = default;
  /// A new event after all work given to this stream so far.
  virtual EventRef record() = 0;
  /// The same for those who only wait: the last event if no work was given since, which may have a time long
  /// before this call.
  virtual EventRef fence() = 0;
  /// Work given to this stream from now on starts after `event`, which must have been recorded before this
  /// call, on any stream of this process.
  virtual void wait(const EventRef& event) = 0;
  /// The op of the Program that work given from now on belongs to. Failures name it.
  virtual void begin(uint32_t op) = 0;
};

}  // namespace stp
