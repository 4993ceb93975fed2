// Figures of machines by hand, and shares of a whole against their definition.
#include "stp/report/machine_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "stp/cost/gemm.h"
#include "stp/report/shapley.h"

namespace stp {
namespace {

using testing::DoubleNear;

constexpr const char* kProfiles = STP_SOURCE_DIR "/profiles/";

ModelConfig model() { return read_model(STP_SOURCE_DIR "/models/llm-12.1b.json"); }

TEST(GemmFigures, AreTheLayersProductsForwardAndBackward) {
  const HardwareProfile a800 = read_profile(std::string(kProfiles) + "a800.json");
  const auto figures = gemm_figures(a800, model(), {6144, 1, 4}, Implementation::megatron);
  EXPECT_EQ(figures.size(), 12);  // QKV, projection, FC1 and FC2, three times each
  double flops = 0;
  for (const GemmFigure& figure : figures) {
    flops += figure.gemm.flops();
    EXPECT_DOUBLE_EQ(figure.seconds, gemm_seconds(a800, figure.gemm));
  }
  // Three times two FLOP per parameter of the layer's matrices and token.
  const double parameters = 5120.0 * (5120 + 2 * 8 * 128) + 5120.0 * 5120 + 3 * 5120.0 * 18944;
  EXPECT_NEAR(flops, 6 * parameters * 6144 / 4, 1e-6 * flops);
  // QKV: 6144 × 1792 × 5120.
  EXPECT_EQ(figures[0].gemm.m, 6144);
  EXPECT_EQ(figures[0].gemm.n, 1792);
  EXPECT_EQ(figures[0].gemm.k, 5120);
}

TEST(GemmRate, IsWorkOverTime) {
  const std::vector<GemmFigure> figures = {{Unit::attn, UnitPass::F, {1, 1, 1}, 4},
                                           {Unit::attn, UnitPass::I, {2, 1, 1}, 4},
                                           {Unit::mlp, UnitPass::F, {3, 1, 1}, 8}};
  EXPECT_EQ(gemm_rate(figures), 12.0 / 16);
  EXPECT_EQ(gemm_rate(figures, Unit::attn), 6.0 / 8);
  EXPECT_EQ(gemm_rate(figures, Unit::attn, UnitPass::F), 0.5);
  EXPECT_EQ(gemm_rate(figures, Unit::head), std::nullopt);
}

TEST(AllReduceBusBandwidth, IsThatOfNcclTests) {
  const HardwareProfile h100 = read_profile(std::string(kProfiles) + "h100.json");
  // Measured at 8 GPUs and 64 MiB: 361.8 GB/s.
  EXPECT_NEAR(all_reduce_bus_bandwidth(h100, 64 * 1024 * 1024, 8), 361.8e9, 1e3);
  // Latency keeps small ones below it.
  EXPECT_LT(all_reduce_bus_bandwidth(h100, 1e6, 4), 100e9);
}

TEST(ExposedShare, IsWhatOverlapCostsByHand) {
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {}), 0);
  EXPECT_DOUBLE_EQ(exposed_share(1, 4, {}), 0.75);  // what outlasts the compute
  EXPECT_DOUBLE_EQ(exposed_share(0, 4, {0.5, 0.5}), 1);
  // The all-reduce takes 4 / 0.8 = 5, in which the compute loses 2.5.
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {0.5, 0.8}), 2.5 / 4);
  // Two experiments of the paper's table, which its rates were solved from: 8.605 and 3.364 take 9.251 ms
  // together, 0.334 and 1.643 take 1.685.
  EXPECT_NEAR(8.605 + 3.364 * exposed_share(8.605, 3.364, {0.83, 0.90}), 9.251, 0.02);
  EXPECT_NEAR(0.334 + 1.643 * exposed_share(0.334, 1.643, {0.83, 0.90}), 1.685, 0.02);
}

// ---- shares ----

TEST(Shares, AreTheMeanOverAllOrders) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> value(-1, 1);
  for (int parts = 0; parts <= 5; ++parts) {
    std::vector<double> values(size_t{1} << parts);
    for (double& each : values) each = value(random);
    std::vector<int> order(parts);
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> mean(parts, 0);
    int orders = 0;
    do {
      size_t set = 0;
      for (const int part : order) {
        mean[part] += values[set | size_t{1} << part] - values[set];
        set |= size_t{1} << part;
      }
      ++orders;
    } while (std::next_permutation(order.begin(), order.end()));
    const std::vector<Share> shares = shares_of(values);
    ASSERT_EQ(shares.size(), static_cast<size_t>(parts));
    double sum = 0;
    for (int part = 0; part < parts; ++part) {
      EXPECT_NEAR(shares[part].shapley, mean[part] / orders, 1e-12);
      EXPECT_EQ(shares[part].alone, values[size_t{1} << part] - values[0]);
      sum += shares[part].shapley;
    }
    EXPECT_NEAR(sum, values.back() - values[0], 1e-12);
  }
}

TEST(Shares, DivideWhatOnlyTogetherMovesEqually) {
  const std::vector<Share> shares = shares_of({0, 0, 0, 6});
  EXPECT_EQ(shares[0].alone, 0);
  EXPECT_EQ(shares[0].shapley, 3);
  EXPECT_EQ(shares[1].shapley, 3);
}

}  // namespace
}  // namespace stp
