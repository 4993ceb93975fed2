// In-order queues of work on a device, and events between them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace stp {

class Stream;

/// By stream, with its rank: the latest of its events that something comes after.
using LatestEvents = std::vector<std::pair<std::pair<int, const Stream*>, uint64_t>>;

/// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  /// When the stream passed it, in seconds of the device's clock. Only after the stream was synchronised.
  [[nodiscard]] virtual double seconds() const = 0;

 private:
  friend class Stream;
  std::pair<int, const Stream*> of_;  // its rank and stream
  uint64_t number_ = 0;
  std::shared_ptr<const LatestEvents> behind_;  // of other streams, before it
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
  /// The same for those who only wait: the last event if no work was given since, which may have a time long
  /// before this call.
  virtual EventRef fence() = 0;
  /// Work given to this stream from now on starts after `event`, which must have been recorded before this
  /// call, on any stream of this process.
  virtual void wait(const EventRef& event) = 0;
  /// The op of the Program that work given from now on belongs to. Failures name it.
  virtual void begin(uint32_t op) = 0;

  /// Whether work given from now on starts after `event`, by the waits of this stream and of the streams of
  /// its rank that it has waited for, and of other ranks as far as it has waited for them itself.
  [[nodiscard]] bool is_behind(const Event& event) const;

 protected:
  /// For is_behind(): to be called with each event that record() makes, and each that wait() is given.
  void note_record(Event& event);
  void note_wait(const Event& event);

 private:
  const std::pair<int, const Stream*> of_;
  uint64_t latest_ = 0;  // its own latest event
  std::shared_ptr<LatestEvents> behind_ =
      std::make_shared<LatestEvents>();  // shared with events until it changes
};

}  // namespace stp
