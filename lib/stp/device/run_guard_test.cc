// Waits that end: when they are ready, when the run fails, and when nothing moves. No test depends on how
// long anything takes: deadlines here are either never or always reached.
#include "stp/device/run_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace stp {
namespace {

using std::chrono::duration;
using testing::HasSubstr;

constexpr duration<double> kNever{3600}, kSoon{0.1};

class Waiting {
 public:
  void set() {
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
    }
    changed_.notify_all();
  }
  void wait(RunGuard& guard, RunGuard::WaitFor wait_for = RunGuard::WaitFor::peer) {
    std::unique_lock lock(mutex_);
    guard.wait(
        lock, changed_, wait_for, [this] { return ready_; }, [] { return "the test waits"; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
};

TEST(RunGuard, AWaitEndsWhenItIsReady) {
  RunGuard guard(kNever);
  Waiting waiting;
  std::thread other([&] { waiting.set(); });
  waiting.wait(guard);
  other.join();
  EXPECT_FALSE(guard.failed());
  EXPECT_EQ(guard.failure(), "");
}

TEST(RunGuard, TheFirstFailureIsKeptAndEndsWaits) {
  RunGuard guard(kNever);
  Waiting waiting;
  std::thread other([&] {
    guard.fail("first");
    guard.fail("second");
  });
  EXPECT_THROW(waiting.wait(guard), Cancelled);
  other.join();
  EXPECT_EQ(guard.failure(), "first");
  EXPECT_THROW(guard.check(), Cancelled);
}

TEST(RunGuard, AWaitThatIsReadyReturnsAfterAFailure) {
  RunGuard guard(kNever);
  Waiting waiting;
  waiting.set();
  guard.fail("first");
  EXPECT_NO_THROW(waiting.wait(guard));
}

TEST(RunGuard, NothingMovingIsAFailureThatNamesWhatWaits) {
  RunGuard guard(kSoon);
  Waiting waiting;
  EXPECT_THROW(waiting.wait(guard), Cancelled);
  EXPECT_EQ(guard.failure(), "the test waits: nothing moved for 0.1 s");
}

TEST(RunGuard, AWaitForOwnWorkHasTwiceTheDeadline) {
  RunGuard guard(kSoon);
  Waiting waiting;
  EXPECT_THROW(waiting.wait(guard, RunGuard::WaitFor::own_work), Cancelled);
  EXPECT_THAT(guard.failure(), HasSubstr("nothing moved for 0.2 s"));
}

// As after a stop of the whole process: the deadline is over, and what was awaited comes before a name is
// found.
TEST(RunGuard, WhatIsReadyOnceItsNameIsSoughtIsNoFailure) {
  RunGuard guard(duration<double>(-1));
  bool is_ready = false;
  const auto ready = [&] { return is_ready; };
  const auto what = [&] {
    is_ready = true;
    return "nobody";
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  EXPECT_NO_THROW(guard.wait(lock, changed, RunGuard::WaitFor::peer, ready, what));
  is_ready = false;
  EXPECT_NO_THROW(guard.poll(RunGuard::WaitFor::peer, ready, what));
  EXPECT_FALSE(guard.failed());
}

// The working thread reports no progress for many deadlines; without Work the wait would fail.
TEST(RunGuard, NoDeadlineExpiresWhileAThreadComputes) {
  RunGuard guard(kSoon);
  Waiting waiting;
  auto work = std::make_unique<RunGuard::Work>(guard);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    waiting.set();
    work.reset();
  });
  EXPECT_NO_THROW(waiting.wait(guard));
  other.join();
  EXPECT_EQ(guard.failure(), "");
}

}  // namespace
}  // namespace stp
