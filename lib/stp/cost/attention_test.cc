#include "stp/cost/attention.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace stp {
namespace {

// TFLOP/s of forward and backward together, 16k tokens of 16 heads of 128, as the published benchmark counts.
double both_directions(const HardwareProfile& profile, int seq, bool causal) {
  double flops = 0, seconds = 0;
  for (const bool backward : {false, true}) {
    const Attention attention{16.0 * 16384 / seq, double(seq), double(seq), 128, causal, backward};
    flops += attention.flops();
    seconds += attention_seconds(profile, attention);
  }
  return flops / seconds / 1e12;
}

struct Published {
  int seq;
  double causal;
};

// Dao-AILab/flash-attention, assets/flash2_a100_fwd_bwd_benchmark.png, head dimension 128 with causal mask.
// The profile's overhead is from the figures without a mask.
TEST(AttentionSeconds, PredictsThePublishedCausalRatesOfA100) {
  constexpr Published rates[] = {{512, 99}, {1024, 133}, {2048, 155}, {4096, 173}, {8192, 182}, {16384, 189}};
  for (const auto& [seq, causal] : rates)
    EXPECT_NEAR(both_directions(profile_of("a100"), seq, true) / causal, 1, 0.02) << seq;
}

TEST(AttentionSeconds, OfEqualTilesIsWavesOverTheSms) {
  HardwareProfile profile = profile_of("a100");
  profile.sms = 10;
  profile.attention_tile_overhead = 64;
  const auto seconds = [&](double heads) {
    return attention_seconds(profile, {heads, 256, 512, 128, false, false});
  };
  const double tile = 128.0 * (512 + 64) * 4 * 128 / (312e12 * profile.attention_forward_efficiency / 10);
  EXPECT_DOUBLE_EQ(seconds(5), tile);  // two tiles a head
  EXPECT_DOUBLE_EQ(seconds(6), 2 * tile);
  EXPECT_DOUBLE_EQ(attention_seconds(profile, {5, 256, 512, 128, false, false}, 5), 2 * tile);
}

// Two SMs, one head of three tiles. Forward: lengths 128, 256, 384, so the first SM runs the first and third;
// backward 384, 256, 128.
TEST(AttentionSeconds, OfACausalForwardEndsWithItsLongestTile) {
  HardwareProfile profile = profile_of("a100");
  profile.sms = 2;
  profile.attention_tile_overhead = 0;
  const auto length = [&](bool backward) {
    const Attention attention{1, 384, 384, 128, true, backward};
    const double efficiency =
        backward ? profile.attention_backward_efficiency : profile.attention_forward_efficiency;
    return attention_seconds(profile, attention) * 312e12 / 2 * efficiency /
           (128 * attention.flops_per_pair());
  };
  EXPECT_NEAR(length(false), 128 + 384, 1e-9);
  EXPECT_NEAR(length(true), 384, 1e-9);
}

TEST(AttentionSeconds, WithoutAnOverheadIsAtTheEfficiencyOfAnyShape) {
  HardwareProfile profile = profile_of("a100");
  profile.attention_tile_overhead = -1;
  const Attention attention{3, 100, 100, 128, true, true};
  EXPECT_DOUBLE_EQ(attention_seconds(profile, attention),
                   attention.flops() / (312e12 * profile.attention_backward_efficiency));
}

// Where tiles are too many to be placed one by one, the result continues the one before.
TEST(AttentionSeconds, OfVeryManyTilesIsTheirMeanLoad) {
  const HardwareProfile profile = profile_of("a100");
  const auto rate = [&](double heads) {
    const Attention attention{heads, 131072, 131072, 128, true, false};
    return attention.flops() / attention_seconds(profile, attention);
  };
  EXPECT_NEAR(rate(977) / rate(976), 1, 1e-3);  // of 1024 tiles each
}

}  // namespace
}  // namespace stp
