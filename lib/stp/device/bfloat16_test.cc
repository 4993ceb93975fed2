#include "stp/device/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stp {
namespace {

Bfloat16 of_bits(uint32_t bits) {
  Bfloat16 value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

TEST(Bfloat16, EveryValueStaysItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bfloat16 value = of_bits(bits);
    if (std::isnan(float{value})) {
      EXPECT_TRUE(std::isnan(float{Bfloat16(float{value})})) << bits;
    } else {
      EXPECT_EQ(Bfloat16(float{value}).bits, value.bits);
    }
  }
}

// Between each finite value and the next one farther from zero.
TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  for (const uint32_t sign : {0x0000U, 0x8000U})
    for (uint32_t below = 0; below + 1 < 0x7F80; ++below) {
      const Bfloat16 even = of_bits(sign | (below + below % 2)), down = of_bits(sign | below),
                     up = of_bits(sign | (below + 1));
      const float half = down + (up - down) / 2;  // exact: a float has bits to spare
      EXPECT_EQ(Bfloat16(half).bits, even.bits) << below;
      EXPECT_EQ(Bfloat16(std::nextafter(half, 0.0F)).bits, down.bits) << below;
      EXPECT_EQ(Bfloat16(std::nextafter(half, std::copysign(INFINITY, half))).bits, up.bits) << below;
    }
}

TEST(Bfloat16, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(float{Bfloat16(std::numeric_limits<float>::max())}, INFINITY);
  EXPECT_EQ(float{Bfloat16(-std::numeric_limits<float>::max())}, -INFINITY);
  EXPECT_EQ(float{Bfloat16(0x1.FEp127F)}, 0x1.FEp127F);
}

TEST(Bfloat16, ANaNWhoseBitsAreAllLowStaysOne) {
  EXPECT_TRUE(std::isnan(float{Bfloat16(std::bit_cast<float>(0x7F800001U))}));
}

}  // namespace
}  // namespace stp
