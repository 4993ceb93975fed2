// Seconds of GEMMs: by tiles, by measurements of a profile, and fused with a collective.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "stp/cost/gemm.h"
#include "support/jobs.h"

namespace stp {
namespace {

// One teraflop per second and multiprocessor.
HardwareProfile plain_chip(int sms) {
  HardwareProfile chip{};
  chip.sms = sms;
  chip.peak_flops = 2e12 * sms;
  chip.gemm_efficiency = 0.5;
  chip.gemm_overhead_k = 0;
  return chip;
}

TEST(GemmSeconds, AreThoseOfTheBestTilingByHand) {
  constexpr double k = 1000, per_element = 2 * k / 1e12;
  // One multiprocessor, one tile that fits exactly: the full rate.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {256, 128, k}), 256 * 128 * per_element);
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {128, 256, k}), 256 * 128 * per_element);
  // 129 rows: 256 × 128 wastes 127 of them; 3 tiles of 64 × 128 at 0.8 cost 61 440, less than 65 536.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(1), {129, 128, k}), 3 * 64 * 128 / 0.8 * per_element);
  // Four multiprocessors: cut into four 128 × 64 tiles, all busy at 0.8 of the rate, 20 480 against 65 536 on
  // one.
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(4), {256, 128, k}), 128 * 64 / 0.8 * per_element);
  // Five large tiles on four multiprocessors are two waves, 65 536 each; 128 × 128 takes three at 0.95 (51
  // 739), 64 × 128 five at 0.8 (51 200).
  EXPECT_DOUBLE_EQ(gemm_seconds(plain_chip(4), {1280, 128, k}), 5 * 64 * 128 / 0.8 * per_element);
}

TEST(GemmSeconds, PayTheOverheadOfATileInStepsOfK) {
  HardwareProfile chip = plain_chip(1);
  const double without = gemm_seconds(chip, {256, 128, 1250});
  chip.gemm_overhead_k = 250;
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {256, 128, 1000}), without);
}

TEST(GemmSeconds, NeverBeatPeakTimesEfficiencyAndComeNearIt) {
  const HardwareProfile profile = a800();
  const double top = profile.peak_flops * profile.gemm_efficiency;
  std::mt19937 random(701);
  std::uniform_real_distribution<double> log_size(0, 16);
  for (int draw = 0; draw < 20000; ++draw) {
    const Gemm gemm{std::floor(std::exp2(log_size(random))), std::floor(std::exp2(log_size(random))),
                    std::floor(std::exp2(log_size(random)))};
    ASSERT_LE(gemm.flops() / gemm_seconds(profile, gemm), top * (1 + 1e-12))
        << gemm.m << " " << gemm.n << " " << gemm.k;
  }
  double before = 0;
  for (const double size : {1024.0, 4096.0, 16384.0, 65536.0, 262144.0}) {
    const double rate = Gemm{size, size, size}.flops() / gemm_seconds(profile, {size, size, size});
    EXPECT_GT(rate, before);
    before = rate;
  }
  EXPECT_GT(before, 0.998 * top);
}

TEST(GemmSeconds, GrowWithEveryDimension) {
  const HardwareProfile profile = a800();
  std::mt19937 random(702);
  for (int draw = 0; draw < 5000; ++draw) {
    const Gemm gemm{1.0 + static_cast<double>(random() % 8192), 1.0 + static_cast<double>(random() % 8192),
                    1.0 + static_cast<double>(random() % 8192)};
    const double more = static_cast<double>(random() % 500), time = gemm_seconds(profile, gemm);
    ASSERT_LE(time, gemm_seconds(profile, {gemm.m + more, gemm.n, gemm.k}));
    ASSERT_LE(time, gemm_seconds(profile, {gemm.m, gemm.n + more, gemm.k}));
    ASSERT_LT(time, gemm_seconds(profile, {gemm.m, gemm.n, gemm.k + 1 + more}));
  }
}

TEST(GemmSeconds, AreThoseMeasuredWhereTheProfileHasMeasurements) {
  HardwareProfile chip = plain_chip(4);
  const Gemm forward{64, 32, 16}, gradient = weight_gradient(forward);
  chip.gemm_measured = {{forward, 2e-6}, {gradient, 4e-6}};
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, forward), 2e-6);
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, gradient), 4e-6);
  // Nearby shapes go at nearly the rate of the neighbour, half way between two at the mean.
  EXPECT_NEAR(gemm_seconds(chip, {65, 32, 16}), 2e-6 * 65 / 64, 0.001e-6);
  chip.gemm_measured = {{{64, 64, 64}, 1e-6}, {{64, 64, 256}, 2e-6}};  // rates 1 : 2
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {64, 64, 128}), 2e-6 / 1.5);
  // The only measurement, of another kind, still gives the machine's rate.
  EXPECT_DOUBLE_EQ(gemm_seconds(chip, {64, 64, 128, GemmKind::input_gradient}), 2e-6 / 1.5);
}

TEST(GemmSeconds, ReproduceTheRatesMeasuredOnA100) {
  const HardwareProfile profile = profile_of("a100");
  const auto rate = [&](const Gemm& gemm) { return gemm.flops() / gemm_seconds(profile, gemm) / 1e12; };
  EXPECT_NEAR(rate({16384, 16384, 16384}) / 256.5, 1, 0.002);  // the efficiency follows from it
  EXPECT_NEAR(rate({8192, 8192, 8192}) / 253.7, 1, 0.03);
  EXPECT_NEAR(rate({4096, 4096, 4096}) / 228, 1, 0.03);
  EXPECT_NEAR(rate({6144, 12288, 12288}) / 250.8, 1, 0.03);
}

TEST(GemmSeconds, ReproduceTheBestRateMeasuredOnH100) {
  HardwareProfile profile = profile_of("h100");
  profile.gemm_sustained = 1;  // a short benchmark
  const Gemm best{6144, 17920, 2816};
  EXPECT_NEAR(best.flops() / gemm_seconds(profile, best) / 792.1e12, 1, 0.002);
}

// Where either ends first, the sum is the longer and one wave of the shorter.
TEST(FusedSeconds, AreTheLongerAndOneWaveOfTheShorter) {
  const HardwareProfile profile = a800();
  for (const double waves : {1.0, 3.0}) {
    const Gemm gemm{128 * profile.sms * waves, 256, 4096};
    const double compute = gemm_seconds(profile, gemm);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, compute / 2), compute + compute / 2 / waves);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, compute * 2), 2 * compute + compute / waves);
    EXPECT_DOUBLE_EQ(fused_seconds(profile, gemm, 0), compute);
  }
}

}  // namespace
}  // namespace stp
