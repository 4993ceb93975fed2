#include "stp/cuda/staging_ring.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace stp::cuda {
namespace {

constexpr size_t kUnit = StagingRing::kAlignment;

TEST(StagingRing, PiecesLieBehindEachOtherAndAreAligned) {
  StagingRing ring(4 * kUnit);
  EXPECT_EQ(ring.take(1), 0U);
  EXPECT_EQ(ring.take(kUnit), kUnit);
  EXPECT_EQ(ring.take(kUnit + 1), 2 * kUnit);
  EXPECT_EQ(ring.take(1), std::nullopt);
}

TEST(StagingRing, TakesAllOfItsBlock) {
  StagingRing ring(4 * kUnit);
  EXPECT_EQ(ring.take(4 * kUnit), 0U);
  EXPECT_EQ(ring.take(1), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(4 * kUnit), 0U);
}

TEST(StagingRing, GoesRoundOnceItsFirstPiecesAreBack) {
  StagingRing ring(4 * kUnit);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(ring.take(kUnit), i * kUnit);
  ring.give_back(kUnit);  // not the first one
  EXPECT_EQ(ring.take(1), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(3 * kUnit), std::nullopt);
  EXPECT_EQ(ring.take(2 * kUnit), 0U);
  EXPECT_EQ(ring.take(1), std::nullopt) << "full: its end has reached its beginning";
  ring.give_back(2 * kUnit);
  EXPECT_EQ(ring.take(kUnit), 2 * kUnit);
}

TEST(StagingRing, RefusesWhatCannotBe) {
  StagingRing ring(4 * kUnit);
  EXPECT_THROW(ring.take(0), std::logic_error);
  EXPECT_THROW(ring.take(4 * kUnit + 1), std::logic_error);
  EXPECT_THROW(ring.give_back(0), std::logic_error);
  const size_t at = *ring.take(1);
  *ring.take(1);
  ring.give_back(at);
  EXPECT_THROW(ring.give_back(at), std::logic_error);
}

// Whatever the order in which pieces come back: no two overlap, none leaves the block, and when all are back
// there is room for the whole again.
TEST(StagingRing, RandomPiecesNeverOverlap) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    StagingRing ring(16 * kUnit);
    std::vector<std::pair<size_t, size_t>> taken;
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      const size_t bytes = 1 + random() % (5 * kUnit);
      if (random() % 2 == 0) {
        const auto at = ring.take(bytes);
        if (!at) {
          ++refused;
          continue;
        }
        ASSERT_EQ(*at % kUnit, 0U);
        ASSERT_LE(*at + bytes, ring.capacity());
        for (const auto& [begin, end] : taken)
          ASSERT_TRUE(*at + bytes <= begin || end <= *at) << round << " " << i;
        taken.emplace_back(*at, *at + bytes);
      } else if (!taken.empty()) {
        std::swap(taken[random() % taken.size()], taken.back());
        ring.give_back(taken.back().first);
        taken.pop_back();
      }
    }
    EXPECT_GT(refused, 0);
    for (const auto& [begin, end] : taken) ring.give_back(begin);
    EXPECT_TRUE(ring.take(ring.capacity()));
  }
}

// One host takes, another gives back, as whoever finds that the device is done does.
TEST(StagingRing, ThreadsMayShareIt) {
  StagingRing ring(8 * kUnit);
  std::mutex mutex;
  std::vector<size_t> under_way;
  std::thread device([&] {
    for (int back = 0; back < 300; std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      for (; !under_way.empty(); under_way.pop_back(), ++back) ring.give_back(under_way.back());
    }
  });
  for (int i = 0; i < 300; std::this_thread::yield())
    if (const auto at = ring.take(3 * kUnit)) {
      const std::lock_guard lock(mutex);
      under_way.push_back(*at);
      ++i;
    }
  device.join();
}

}  // namespace
}  // namespace stp::cuda
