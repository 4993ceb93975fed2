#include "stp/device/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace stp {
namespace {

// A stream that only records what it waits for.
struct NotedEvent : Event {
  explicit NotedEvent(const Stream& of) : stream(&of) {}
  [[nodiscard]] double seconds() const override { return 0; }
  const Stream* stream;
};
struct NotedStream : Stream {
  EventRef record() override { return std::make_shared<NotedEvent>(*this); }
  EventRef fence() override { return record(); }
  void wait(const EventRef& event) override {
    waits.push_back(dynamic_cast<const NotedEvent&>(*event).stream);
  }
  void begin(uint32_t) override {}
  std::vector<const Stream*> waits;
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
  NotedStream a, b;
};

TEST_F(Blocks, AreUsedAgainOnTheirStreamWithoutAWait) {
  std::byte* const first = allocator.allocate(a, 64);
  EXPECT_NE(allocator.allocate(a, 64), first);
  allocator.release(a, first, 64);
  EXPECT_NE(allocator.allocate(a, 128), first);  // of another size
  EXPECT_EQ(allocator.allocate(a, 64), first);
  EXPECT_TRUE(a.waits.empty());
}

TEST_F(Blocks, OfAnotherStreamAreWaitedForRatherThanFreshOnesTaken) {
  std::byte* const first = allocator.allocate(a, 64);
  std::byte* const second = allocator.allocate(a, 64);
  allocator.release(a, first, 64);
  allocator.release(b, second, 64);
  EXPECT_EQ(allocator.allocate(b, 64), second);  // its own
  EXPECT_TRUE(b.waits.empty());
  EXPECT_EQ(allocator.allocate(b, 64), first);
  EXPECT_EQ(b.waits, (std::vector<const Stream*>{&a}));
}

TEST_F(Blocks, AreNeverMoreThanWereHeldAtOnceHoweverFarTheHostIsAhead) {
  std::mt19937 random(3);
  std::vector<std::byte*> held;
  size_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    NotedStream& stream = random() % 2 ? a : b;
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
  EXPECT_TRUE(a.waits.empty());  // the device was done with everything
}

}  // namespace
}  // namespace stp
