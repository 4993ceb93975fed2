// A clock of double seconds made of marks between which only short times can be measured well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace stp::cuda {

/// CUDA gives the time between two events in float milliseconds, whose steps grow with the time: 1 µs is
/// lost from 8 s on. So every few seconds one more epoch is marked, and times are taken from the latest epoch
/// before them. Epochs are found by their number, from 0.
template <typename Mark>
class EpochClock {
 public:
  /// `elapsed(from, to)`: seconds between two marks, `from` being the earlier one.
  template <typename Elapsed>
  void add(Mark mark, Elapsed elapsed) {
    const double seconds = epochs_.empty() ? 0 : epochs_.back().seconds + elapsed(epochs_.back().mark, mark);
    epochs_.push_back({mark, seconds});
  }
  [[nodiscard]] size_t latest() const { return epochs_.size() - 1; }

  /// When `mark` was passed, in seconds since the first epoch, which came, as `epoch` did, before it.
  template <typename Elapsed>
  double seconds(Mark mark, size_t epoch, Elapsed elapsed) const {
    const double about = epochs_[epoch].seconds + elapsed(epochs_[epoch].mark, mark);
    const auto behind = std::upper_bound(epochs_.begin() + epoch, epochs_.end(), about,
                                         [](double time, const Epoch& each) { return time < each.seconds; });
    if (behind - epochs_.begin() <= static_cast<std::ptrdiff_t>(epoch) + 1) return about;
    const Epoch& nearest = *std::prev(behind);
    return nearest.seconds + elapsed(nearest.mark, mark);
  }

  template <typename Do>
  void for_each(Do apply) const {
    for (const Epoch& each : epochs_) apply(each.mark);
  }

 private:
  struct Epoch {
    Mark mark;
    double seconds;
  };
  std::vector<Epoch> epochs_;
};

}  // namespace stp::cuda
