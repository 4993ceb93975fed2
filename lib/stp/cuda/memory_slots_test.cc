#include "stp/cuda/memory_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace stp::cuda {
namespace {

// Streams, by address.
const char kStreams[3] = {};
const void* const kCompute = &kStreams[0];
const void* const kSend = &kStreams[1];
const void* const kOther = &kStreams[2];

class Slots : public testing::Test {
 protected:
  SlotRef take(const void* stream, size_t bytes) { return slots_.take(stream, bytes).slot; }
  bool is_new(const void* stream, size_t bytes) { return slots_.take(stream, bytes).is_new; }
  void give(const void* stream, const SlotRef& slot) {
    slots_.give_back(stream, slot, [this, number = slot->number] {
      return [this, number] { return passed_.count(number) > 0; };
    });
  }

  MemorySlots slots_;
  std::set<uint64_t> passed_;
};

TEST_F(Slots, TheLowestOfItsSizeComesFirst) {
  const SlotRef a = take(kCompute, 100), b = take(kCompute, 512), c = take(kCompute, 513);
  EXPECT_EQ(a->bytes, 512U);
  EXPECT_EQ(c->bytes, 1024U);
  give(kCompute, b);
  give(kCompute, c);
  give(kCompute, a);
  EXPECT_EQ(take(kCompute, 300), a);
  EXPECT_EQ(take(kCompute, 300), b);
  EXPECT_TRUE(is_new(kCompute, 300));
}

TEST_F(Slots, NoStreamWaitsForAnother) {
  const SlotRef a = take(kCompute, 100), b = take(kCompute, 100);
  give(kSend, a);
  give(kSend, b);
  const SlotRef fresh = take(kCompute, 100);
  EXPECT_NE(fresh, a);
  EXPECT_NE(fresh, b);
  passed_ = {b->number};
  EXPECT_TRUE(is_new(kCompute, 100)) << "the oldest has not passed";
  passed_ = {a->number};
  EXPECT_EQ(take(kCompute, 100), a);
  EXPECT_EQ(take(kSend, 100), b) << "where it was given back itself";
}

TEST_F(Slots, WhatOneStreamGaveBackIsNotAnothersBeforeTheDeviceSettles) {
  const SlotRef a = take(kCompute, 100);
  give(kCompute, a);
  EXPECT_TRUE(is_new(kOther, 100));
  EXPECT_TRUE(slots_.settle().empty());
  EXPECT_EQ(take(kOther, 100), a);
}

TEST_F(Slots, EmptyTensorsHaveSlotsToo) { EXPECT_EQ(take(kCompute, 0)->bytes, 512U); }

TEST_F(Slots, WhatIsNotTakenForAWholePeriodIsGivenUp) {
  const SlotRef large = take(kCompute, 10000);
  give(kCompute, large);
  const SlotRef kept = take(kCompute, 5000);  // in use throughout
  EXPECT_TRUE(slots_.settle().empty());
  EXPECT_TRUE(slots_.settle().empty()) << "nothing was taken since";
  give(kCompute, take(kCompute, 100));
  EXPECT_EQ(slots_.settle(), std::vector<SlotRef>{large});
  EXPECT_TRUE(is_new(kCompute, 10000));
}

// Random programs: no slot is two tensors' at once; another stream's is had only when it has passed or all
// was settled; and the same program in the next step gets the same slots.
TEST_F(Slots, StepsOfOneProgramGetTheSameSlots) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    slots_ = {};
    std::vector<std::vector<uint64_t>> steps;
    for (int step = 0; step < 30; ++step) {
      std::mt19937 random(seed);
      std::vector<SlotRef> held;
      std::set<uint64_t> used;
      std::vector<uint64_t> numbers;
      for (int i = 0; i < 300; ++i) {
        const void* stream = random() % 4 == 0 ? kSend : kCompute;
        if (held.size() < 20 && random() % 2 == 0) {
          const SlotRef slot = take(stream, 600 * (random() % 3));
          EXPECT_TRUE(used.insert(slot->number).second);
          numbers.push_back(slot->number);
          held.push_back(slot);
        } else if (!held.empty()) {
          const size_t which = random() % held.size();
          used.erase(held[which]->number);
          give(stream, held[which]);
          held.erase(held.begin() + which);
        }
      }
      for (const SlotRef& slot : held) give(kCompute, slot);
      slots_.settle();
      steps.push_back(numbers);
    }
    EXPECT_EQ(steps[28], steps[27]);
    EXPECT_EQ(steps[29], steps[27]);
  }
}

}  // namespace
}  // namespace stp::cuda
