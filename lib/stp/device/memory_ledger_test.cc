#include "stp/device/memory_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace stp {
namespace {

using testing::HasSubstr;

TEST(MemoryLedger, CountsHeldAndPeakByKindAndAltogether) {
  MemoryLedger ledger;
  ledger.allocate(MemoryKind::saved, 100);
  ledger.allocate(MemoryKind::working, 30);
  ledger.release(MemoryKind::saved, 60);
  ledger.allocate(MemoryKind::working, 20);
  EXPECT_EQ(ledger.held(MemoryKind::saved), 40U);
  EXPECT_EQ(ledger.peak(MemoryKind::saved), 100U);
  EXPECT_EQ(ledger.peak(MemoryKind::working), 50U);
  EXPECT_EQ(ledger.held(), 90U);
  EXPECT_EQ(ledger.peak(), 130U);  // not 150, the sum of peaks at different times
  EXPECT_EQ(ledger.held(MemoryKind::weights), 0U);
}

TEST(MemoryLedger, AChangeOfKindMovesBytesAndMakesPeaks) {
  MemoryLedger ledger;
  ledger.allocate(MemoryKind::working, 50);
  ledger.retag(MemoryKind::working, MemoryKind::saved, 20);
  ledger.retag(MemoryKind::saved, MemoryKind::saved, 1000);  // none
  EXPECT_EQ(ledger.held(MemoryKind::working), 30U);
  EXPECT_EQ(ledger.peak(MemoryKind::saved), 20U);
  EXPECT_EQ(ledger.held(), 50U);
  EXPECT_EQ(ledger.peak(), 50U);
}

TEST(MemoryLedger, PeaksStartAgainFromWhatIsHeld) {
  MemoryLedger ledger;
  ledger.allocate(MemoryKind::saved, 50);
  ledger.release(MemoryKind::saved, 40);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak(MemoryKind::saved), 10U);
  EXPECT_EQ(ledger.peak(), 10U);
}

TEST(MemoryLedger, TheLimitIsForAllKindsTogetherAndMayBeReached) {
  MemoryLedger ledger(100);
  ledger.allocate(MemoryKind::weights, 60);
  ledger.allocate(MemoryKind::saved, 40);
  try {
    ledger.allocate(MemoryKind::working, 1);
    FAIL() << "a byte over the limit was given";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 bytes (working) asked for, limit 100"));
    EXPECT_THAT(error.what(), HasSubstr("weights 60"));
    EXPECT_THAT(error.what(), HasSubstr("saved 40"));
  }
  EXPECT_EQ(ledger.held(), 100U);
  ledger.release(MemoryKind::weights, 1);
  EXPECT_NO_THROW(ledger.allocate(MemoryKind::working, 1));
}

TEST(MemoryLedger, ScratchCountsForTheLimitAlone) {
  MemoryLedger ledger(100);
  ledger.allocate(MemoryKind::weights, 60);
  ledger.add_scratch(30);
  EXPECT_EQ(ledger.scratch(), 30U);
  EXPECT_EQ(ledger.held(), 60U);
  EXPECT_EQ(ledger.peak(), 60U);
  try {
    ledger.allocate(MemoryKind::working, 11);
    FAIL() << "a byte over the limit was given";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("scratch 30"));
  }
  EXPECT_THROW(ledger.add_scratch(11), std::runtime_error);
  EXPECT_NO_THROW(ledger.add_scratch(10));
}

TEST(MemoryLedger, MoreThanIsHeldIsABug) {
  MemoryLedger ledger;
  ledger.allocate(MemoryKind::saved, 10);
  EXPECT_THROW(ledger.release(MemoryKind::saved, 11), std::logic_error);
  EXPECT_THROW(ledger.release(MemoryKind::working, 1), std::logic_error);
  EXPECT_THROW(ledger.retag(MemoryKind::working, MemoryKind::saved, 1), std::logic_error);
  EXPECT_EQ(ledger.held(MemoryKind::saved), 10U);
}

}  // namespace
}  // namespace stp
