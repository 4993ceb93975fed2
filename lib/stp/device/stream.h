// In-order queues of work on a device, and events between them.
#pragma once

#include <cstdint>
#include <memory>

namespace stp {

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// Seconds on the device's clock when the stream passed it. Only after the stream was synchronised.
  [[nodiscard]] virtual double seconds() const = 0;
};
using EventRef = std::shared_ptr<Event>;

enum class StreamPriority { compute, communication };

class Stream {
 public:
  virtual ~Stream() = default;
  /// The event after all work given to this stream so far.
  virtual EventRef record() = 0;
  /// Work given to this stream from now on starts after `event`, which may be of another stream of this
  /// process, and was recorded before this call.
  virtual void wait(const EventRef& event) = 0;
  /// What the work given from now on is for: an op of the Program. Failures name it.
  virtual void begin(uint32_t op) = 0;
};

}  // namespace stp
