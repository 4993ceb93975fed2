#include "stp/device/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace stp {
namespace {

// A stream without work.
struct NotedEvent : Event {
  [[nodiscard]] double seconds() const override { return 0; }
};
struct NotedStream : Stream {
  using Stream::Stream;
  EventRef record() override {
    const auto event = std::make_shared<NotedEvent>();
    note_record(*event);
    return event;
  }
  EventRef fence() override { return record(); }
  void wait(const EventRef& event) override {
    note_wait(*event);
    ++waits;
  }
  void begin(uint32_t) override {}
  int waits = 0;
};

class Blocks : public testing::Test {
 protected:
  ~Blocks() override { allocator.clear(); }

  std::map<std::byte*, std::unique_ptr<std::byte[]>> memory;
  size_t bytes = 0;
  CachingAllocator allocator{[this](size_t size) {
                               auto block = std::make_unique<std::byte[]>(size);
                               std::byte* const at = block.get();
                               memory[at] = std::move(block);
                               bytes += size;
                               return at;
                             },
                             [this](std::byte* at) { EXPECT_EQ(memory.erase(at), 1U); }};
  NotedStream a{0}, b{0}, c{0}, other_rank{1}, third_rank{2};
};

TEST_F(Blocks, AreUsedAgainOnTheirStreamWithoutAWait) {
  std::byte* const first = allocator.allocate(a, 64);
  EXPECT_NE(allocator.allocate(a, 64), first);
  allocator.release(a, first, 64);
  EXPECT_NE(allocator.allocate(a, 128), first);  // of another size
  EXPECT_EQ(allocator.allocate(a, 64), first);
  EXPECT_EQ(a.waits, 0);
}

// A wait would be a dependency that the program does not have.
TEST_F(Blocks, OfAnotherStreamAreUsedOnlyBehindTheirRelease) {
  std::byte* const first = allocator.allocate(a, 64);
  std::byte* const second = allocator.allocate(a, 64);
  const EventRef before = a.record();
  allocator.release(a, first, 64);
  allocator.release(b, second, 64);
  EXPECT_EQ(allocator.allocate(b, 64), second);  // its own
  b.wait(before);
  std::byte* const fresh = allocator.allocate(b, 64);
  EXPECT_NE(fresh, first);
  b.wait(a.record());
  EXPECT_EQ(allocator.allocate(b, 64), first);
  EXPECT_EQ(b.waits, 2) << "those of the test";
}

TEST_F(Blocks, AreUsedBehindTheirReleaseByWayOfOtherStreams) {
  const auto release = [&] {
    std::byte* const block = allocator.allocate(a, 64);
    allocator.release(a, block, 64);
    return block;
  };
  std::byte* const block = release();
  b.wait(a.record());
  const EventRef behind = b.record();
  EXPECT_NE(allocator.allocate(c, 64), block);
  c.wait(behind);
  EXPECT_EQ(allocator.allocate(c, 64), block);
  // A link's stream is of the sender's rank, and allocates the receiver's memory.
  std::byte* const received = release();
  other_rank.wait(a.record());
  EXPECT_EQ(allocator.allocate(other_rank, 64), received);
  std::byte* const next = release();
  b.wait(a.record());
  other_rank.wait(b.record());
  EXPECT_EQ(allocator.allocate(other_rank, 64), next);
  std::byte* const last = release();
  other_rank.wait(a.record());
  third_rank.wait(other_rank.record());
  EXPECT_NE(allocator.allocate(third_rank, 64), last) << "it is not told of third ranks";
}

TEST_F(Blocks, AreNeverMoreThanWereHeldAtOnceHoweverFarTheHostIsAhead) {
  std::mt19937 random(3);
  std::vector<std::byte*> held;
  size_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    NotedStream &stream = random() % 2 ? a : b, &other = &stream == &a ? b : a;
    stream.wait(other.record());  // as in a chain
    if (random() % 2 && held.size() < 20) {
      held.push_back(allocator.allocate(stream, 256));
    } else if (!held.empty()) {
      allocator.release(stream, held.back(), 256);
      held.pop_back();
    }
    most = std::max(most, held.size());
  }
  EXPECT_EQ(bytes, most * 256);
}

TEST_F(Blocks, ThatAStepDoesNotUseAreFreedByTheNext) {
  std::byte* const once = allocator.allocate(a, 64);
  allocator.release(a, once, 64);
  allocator.trim();
  EXPECT_EQ(memory.size(), 1U);  // the next step may want it
  allocator.trim();
  EXPECT_EQ(memory.size(), 1U);
  std::byte* const every = allocator.allocate(b, 32);
  allocator.release(b, every, 32);
  allocator.trim();
  EXPECT_EQ(memory.size(), 1U);
  EXPECT_EQ(allocator.allocate(a, 32), every);
  EXPECT_EQ(a.waits, 0);  // the device was done with everything
}

}  // namespace
}  // namespace stp
