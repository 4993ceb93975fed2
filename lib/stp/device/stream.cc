#include "stp/device/stream.h"

#include <algorithm>
#include <atomic>

namespace stp {

bool Stream::is_behind(const Event& event) const {
  const auto found = behind_.find(event.of_);
  return found != behind_.end() && found->second >= event.number_;
}

// Numbers grow over all streams: that of a stream that ended is less than any of a new one in its place.
void Stream::note_record(Event& event) {
  static std::atomic<uint64_t> numbers{0};
  event.of_ = of_;
  event.number_ = behind_[of_] = ++numbers;
  event.behind_ = behind_;
}

// What another rank's stream knows of third ranks is left out: nobody needs it, and there may be many.
void Stream::note_wait(const Event& event) {
  for (const auto& [of, number] : event.behind_)
    if (of.first == of_.first || of.first == event.of_.first) behind_[of] = std::max(behind_[of], number);
}

}  // namespace stp
