// Figures of machines by hand.
#include "stp/report/machine_figures.h"

#include <gtest/gtest.h>

#include "stp/cost/gemm.h"

namespace stp {
namespace {

constexpr const char* kProfiles = STP_SOURCE_DIR "/profiles/";

ModelConfig model() { return read_model(STP_SOURCE_DIR "/models/llm-12.1b.json"); }

TEST(GemmFigures, AreTheLayersGemmsForwardAndBackward) {
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

TEST(SimulatedOverlap, ExposesWhatItCostsByHand) {
  const auto exposed_share = [](double compute_s, double all_reduce_s, const Contention& contention) {
    return simulated_overlap(compute_s, all_reduce_s, contention).exposed_share;
  };
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {}), 0);
  EXPECT_DOUBLE_EQ(exposed_share(1, 4, {}), 0.75);  // what outlasts the compute
  EXPECT_DOUBLE_EQ(exposed_share(0, 4, {0.5, 0.5}), 1);
  // The all-reduce takes 4 / 0.8 = 5, in which the compute loses 2.5.
  EXPECT_DOUBLE_EQ(exposed_share(10, 4, {0.5, 0.8}), 2.5 / 4);
  // Two experiments of the paper's table, which its rates were solved from: 8.605 and 3.364 take 9.251 ms
  // together, 0.334 and 1.643 take 1.685.
  EXPECT_NEAR(8.605 + 3.364 * exposed_share(8.605, 3.364, {0.83, 0.90}), 9.251, 0.002 * 9.251);
  EXPECT_NEAR(0.334 + 1.643 * exposed_share(0.334, 1.643, {0.83, 0.90}), 1.685, 0.002 * 1.685);
}

}  // namespace
}  // namespace stp
