#include "stp/cpu/exponential.h"

#include <gtest/gtest.h>

namespace stp::cpu {
namespace {

TEST(Exponential, OfFloatsIsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87; x <= 88; x += 0.00731F) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_LE(std::abs(exponential(x) - exact), 2 * exact * 0x1p-23) << x;
  }
}

TEST(Exponential, BeyondItsEndsIsAsThere) {
  for (const float x : {-87.5F, -1000.0F, -INFINITY}) EXPECT_EQ(exponential(x), exponential(-87.0F)) << x;
  for (const float x : {88.5F, 1000.0F, INFINITY}) EXPECT_EQ(exponential(x), exponential(88.0F)) << x;
}

TEST(Exponential, OfNoNumberIsNone) {
  EXPECT_TRUE(std::isnan(exponential(NAN)));
  EXPECT_TRUE(std::isnan(exponential(-NAN)));
}

}  // namespace
}  // namespace stp::cpu
