// Groups whose other members do not exist, over emulated links (link_emulation.h): what is the same on all
// devices. What moves the bytes is each backend's.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "stp/device/group.h"
#include "stp/device/run_guard.h"
#include "stp/emulation/link_emulation.h"

namespace stp {

/// What calls over emulated links took, and of the device's memory.
struct EmulatedUse {
  int64_t calls = 0;
  /// By how much calls took longer than `Replay::times`: of all of them together, and of the worst one.
  double late_s = 0, latest_s = 0;
  /// Buffers that stand for the links: what the call with the most had, which no tracker counts. The calls
  /// of several groups may have theirs at once.
  size_t link_bytes = 0;

  EmulatedUse& operator+=(const EmulatedUse& other);
};

/// Of one group, counted by what carries its calls out, on any thread.
class EmulatedUseCounter {
 public:
  void count(double late_s, size_t link_bytes);
  /// Since this was last asked.
  EmulatedUse take();

 private:
  std::mutex mutex_;
  EmulatedUse use_;
};

/// A call as the one member of the group makes it that there is.
struct EmulatedCall {
  CallKind kind;
  Part part;
  LinkEmulation link;  // of the whole: an all-gather's output, a reduce-scatter's input
  int size = 1, index = 0;

  /// Throws std::runtime_error if the call takes longer than the run's deadline: nothing would move
  /// meanwhile.
  void refuse_endless(const RunGuard& guard) const;
};

/// A group of which this process drives one member. Every call takes `replay.times` at least, and meanwhile
/// copies what a ring's or a link's end copies in its own memory: a collective's input into link buffers and
/// out of them. No sum is made: an all-reduce leaves its tensor as it was, a reduce-scatter its own piece of
/// the input, an all-gather's output is the input over and over, and what is received are small finite
/// numbers, the same each time. A call whose time is longer than the run's deadline fails the run at once.
class EmulatedGroup : public Group {
 public:
  /// Calls go over `collective_ctas` or `transfer_ctas`, each of which moves up to `piece` bytes at a time.
  EmulatedGroup(std::string name, const Replay& replay, const std::vector<int>& members, int64_t piece);

  /// Of the calls since this was last asked. After the device was synchronised.
  [[nodiscard]] virtual EmulatedUse take_use() { return use_->take(); }

 protected:
  virtual void carry_out(EmulatedCall call) = 0;
  /// For what carries calls out, which may be after this group is gone.
  [[nodiscard]] const std::shared_ptr<EmulatedUseCounter>& use() const { return use_; }

 private:
  void carry_out(const Call& call) final;

  const Replay replay_;
  const int64_t piece_;
  std::shared_ptr<EmulatedUseCounter> use_ = std::make_shared<EmulatedUseCounter>();
};

}  // namespace stp
