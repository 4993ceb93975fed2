#include "stp/device/stream.h"

#include <algorithm>
#include <atomic>

namespace stp {
namespace {

// A rank has few streams: a search from the front is the fastest.
template <typename Events, typename Of>
auto* entry_of(Events& events, const Of& of) {
  const auto found =
      std::find_if(events.begin(), events.end(), [&](const auto& each) { return each.first == of; });
  return found == events.end() ? nullptr : &*found;
}

}  // namespace

bool Stream::is_behind(const Event& event) const {
  if (event.of_ == of_) return event.number_ <= latest_;
  const auto* const known = entry_of(std::as_const(*behind_), event.of_);
  return known != nullptr && event.number_ <= known->second;
}

// Numbers grow over all streams: those of an ended stream are less than any of a new stream at its address.
void Stream::note_record(Event& event) {
  static std::atomic<uint64_t> numbers{0};
  event.of_ = of_;
  event.number_ = latest_ = ++numbers;
  event.behind_ = behind_;
}

// Leaves out what another rank's stream knows of third ranks: nobody needs that, and there may be many.
void Stream::note_wait(const Event& event) {
  const auto note = [this](const auto& of, uint64_t number) {
    if (of == of_) return;
    const auto* const known = entry_of(std::as_const(*behind_), of);
    if (known != nullptr && number <= known->second) return;
    if (behind_.use_count() > 1) behind_ = std::make_shared<LatestEvents>(*behind_);
    if (auto* const own = entry_of(*behind_, of))
      own->second = number;
    else
      behind_->emplace_back(of, number);
  };
  note(event.of_, event.number_);
  if (!event.behind_) return;
  const std::shared_ptr<const LatestEvents> others = event.behind_;
  for (const auto& [of, number] : *others)
    if (of.first == of_.first || of.first == event.of_.first) note(of, number);
}

}  // namespace stp
