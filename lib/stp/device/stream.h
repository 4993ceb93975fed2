// In-order queues of work on a device, and events between them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace stp {

class Stream;

/// By rank and stream: the number of the stream's latest event that is known to come first.
using LatestEvents = std::vector<std::pair<std::pair<int, const Stream*>, uint64_t>>;

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// The time when the stream passed it, on the device's clock, in seconds. Only after synchronisation.
  [[nodiscard]] virtual double seconds() const = 0;

 private:
  friend class Stream;
  std::pair<int, const Stream*> of_;  // its rank and stream
  uint64_t number_ = 0;
  std::shared_ptr<const LatestEvents> behind_;  // events of other streams that come before it
};
using EventRef = std::shared_ptr<Event>;

enum class StreamPriority { compute, communication };

class Stream {
 public:
  explicit Stream(int rank = 0) : of_(rank, this) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  /// A new event after all work given to this stream so far.
  virtual EventRef record() = 0;
  /// An event for waits: the last event if no work was given since, else a new one. Its time may be long
  /// before this call.
  virtual EventRef fence() = 0;
  /// Delays work given to this stream from now on until after `event`, which was recorded before this call on
  /// any stream of this process.
  virtual void wait(const EventRef& event) = 0;
  /// Sets the op of the Program that later work belongs to. Failures name it.
  virtual void begin(uint32_t op) = 0;
  /// The op starts here: what was given before are its waits, what follows are its kernels and calls. By
  /// default nothing.
  virtual void start(uint32_t op) { static_cast<void>(op); }

  /// Whether work given from now on starts after `event`. It follows the waits of this stream, of its rank's
  /// streams, and of other ranks' streams within their rank; it ignores what they know of third ranks.
  [[nodiscard]] bool is_behind(const Event& event) const;

 protected:
  /// Used by is_behind(): call with each event that record() makes, and each event given to wait().
  void note_record(Event& event);
  void note_wait(const Event& event);

 private:
  const std::pair<int, const Stream*> of_;
  uint64_t latest_ = 0;  // the number of its own latest event
  std::shared_ptr<LatestEvents> behind_ =
      std::make_shared<LatestEvents>();  // shared with events until it changes
};

}  // namespace stp
