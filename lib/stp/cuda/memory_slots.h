// Which memory the tensors of a rank get: each a slot, that others of its size had before and will have
// again. Taken and given back at the host's calls, so that the same program gets the same addresses, step
// after step. Nothing here knows of a device; what a slot holds is the backend's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace stp::cuda {

struct MemorySlot {
  size_t bytes = 0;
  void* at = nullptr;  // the backend's, once it has memory for it
  // Of MemorySlots.
  uint64_t number = 0;
  const void* taken_on = nullptr;
  uint64_t period = 0;  // when it was last taken
};
using SlotRef = std::shared_ptr<MemorySlot>;

/// Of one rank; for its host's thread. Streams are told apart by address.
class MemorySlots {
 public:
  /// Whether the device has done with what a slot was used for.
  using Passed = std::function<bool()>;

  struct Taken {
    SlotRef slot;
    bool is_new;
  };
  /// A slot that work given to `stream` from now on may use, without waiting for anything: the lowest one
  /// that was given back on this stream, or before the latest settle(); else the oldest that was given back
  /// on another and has passed; else a new one, whose `at` is the caller's to set.
  Taken take(const void* stream, size_t bytes);
  /// Once `stream` comes here, nothing uses it any more. `passed`, which is asked for only where it was taken
  /// on another stream, tells whether the stream has come here.
  void give_back(const void* stream, SlotRef slot, const std::function<Passed()>& passed);
  /// The device has done with everything. Returns the slots that were not taken since the settle() before
  /// the latest, and forgets them; calls between which nothing was taken count as one.
  std::vector<SlotRef> settle();

 private:
  struct Left {
    SlotRef slot;
    const void* stream;
    Passed passed;
  };
  using ByNumber = std::map<uint64_t, SlotRef>;
  struct Free {
    ByNumber settled;
    std::map<const void*, ByNumber> on_stream;  // taken and given back there
    std::deque<Left> left;                      // by other streams than they were taken on
  };

  SlotRef find(Free& free, const void* stream);

  std::map<size_t, Free> free_;  // by bytes
  uint64_t slots_ = 0;           // made so far
  uint64_t period_ = 0;
  bool taken_ = false;  // in this period
};

}  // namespace stp::cuda
