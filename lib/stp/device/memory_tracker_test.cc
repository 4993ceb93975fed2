#include "stp/device/memory_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MemoryTracker, CountsHeldAndPeakByKindAndAltogether) {
  MemoryTracker tracker;
  tracker.allocate(MemoryKind::saved, 100);
  tracker.allocate(MemoryKind::working, 30);
  tracker.release(MemoryKind::saved, 60);
  tracker.allocate(MemoryKind::working, 20);
  EXPECT_EQ(tracker.held(MemoryKind::saved), 40U);
  EXPECT_EQ(tracker.peak(MemoryKind::saved), 100U);
  EXPECT_EQ(tracker.peak(MemoryKind::working), 50U);
  EXPECT_EQ(tracker.held(), 90U);
  EXPECT_EQ(tracker.peak(), 130U);  // not 150, the sum of peaks at different times
  EXPECT_EQ(tracker.held(MemoryKind::weights), 0U);
}

TEST(MemoryTracker, AChangeOfKindMovesBytesAndMakesPeaks) {
  MemoryTracker tracker;
  tracker.allocate(MemoryKind::working, 50);
  tracker.retag(MemoryKind::working, MemoryKind::saved, 20);
  tracker.retag(MemoryKind::saved, MemoryKind::saved, 1000);  // none
  EXPECT_EQ(tracker.held(MemoryKind::working), 30U);
  EXPECT_EQ(tracker.peak(MemoryKind::saved), 20U);
  EXPECT_EQ(tracker.held(), 50U);
  EXPECT_EQ(tracker.peak(), 50U);
}

TEST(MemoryTracker, TheLimitIsForAllKindsTogetherAndMayBeReached) {
  MemoryTracker tracker(100);
  tracker.allocate(MemoryKind::weights, 60);
  tracker.allocate(MemoryKind::saved, 40);
  EXPECT_THAT(error_of<std::runtime_error>([&] { tracker.allocate(MemoryKind::working, 1); }),
              AllOf(HasSubstr("1 bytes (working) requested, limit 100"), HasSubstr("weights 60"),
                    HasSubstr("saved 40")));
  EXPECT_EQ(tracker.held(), 100U);
  tracker.release(MemoryKind::weights, 1);
  EXPECT_NO_THROW(tracker.allocate(MemoryKind::working, 1));
}

TEST(MemoryTracker, ScratchCountsForTheLimitAlone) {
  MemoryTracker tracker(100);
  tracker.allocate(MemoryKind::weights, 60);
  tracker.add_scratch(30);
  EXPECT_EQ(tracker.scratch(), 30U);
  EXPECT_EQ(tracker.held(), 60U);
  EXPECT_EQ(tracker.peak(), 60U);
  EXPECT_THAT(error_of<std::runtime_error>([&] { tracker.allocate(MemoryKind::working, 11); }),
              HasSubstr("scratch 30"));
  EXPECT_THROW(tracker.add_scratch(11), std::runtime_error);
  EXPECT_NO_THROW(tracker.add_scratch(10));
}

TEST(MemoryTracker, MoreThanIsHeldIsABug) {
  MemoryTracker tracker;
  tracker.allocate(MemoryKind::saved, 10);
  EXPECT_THROW(tracker.release(MemoryKind::saved, 11), std::logic_error);
  EXPECT_THROW(tracker.release(MemoryKind::working, 1), std::logic_error);
  EXPECT_THROW(tracker.retag(MemoryKind::working, MemoryKind::saved, 1), std::logic_error);
  EXPECT_EQ(tracker.held(MemoryKind::saved), 10U);
}

TEST(MemoryTracker, CountsTheHostsMemoryApartFromTheDevices) {
  MemoryTracker tracker(100);
  tracker.allocate(MemoryKind::saved, 60);
  tracker.allocate(MemoryKind::host, 1000);  // beyond the device's limit
  EXPECT_EQ(tracker.held(MemoryKind::host), 1000U);
  EXPECT_EQ(tracker.held(), 60U);
  EXPECT_EQ(tracker.peak(), 60U);
  EXPECT_THROW(tracker.retag(MemoryKind::host, MemoryKind::saved, 10), std::logic_error);
  EXPECT_THROW(tracker.retag(MemoryKind::saved, MemoryKind::host, 10), std::logic_error);
  tracker.release(MemoryKind::host, 1000);
  EXPECT_EQ(tracker.held(), 60U);
  EXPECT_EQ(tracker.peak(MemoryKind::host), 1000U);
}

}  // namespace
}  // namespace stp
