#include "stp/cost/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stp {
namespace {

// A tile size and its share of the largest tile's rate: smaller tiles load more per multiplication.
struct Tile {
  double m, n, rate;
};
constexpr Tile kTiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 128, 0.8}};

// The mean rate of the measured GEMMs, weighted by 1 / distance⁴; a measured shape has its own rate. The
// distance is between logarithms of shapes; another kind counts like twice the size.
double measured_rate(const std::vector<MeasuredGemm>& measured, const Gemm& gemm) {
  double rates = 0, weights = 0;
  for (const MeasuredGemm& known : measured) {
    const auto apart = [](double a, double b) { return std::pow(std::log2(a / b), 2); };
    const double squared = apart(known.gemm.m, gemm.m) + apart(known.gemm.n, gemm.n) +
                           apart(known.gemm.k, gemm.k) + (known.gemm.kind == gemm.kind ? 0 : 1);
    const double rate = known.gemm.flops() / known.seconds;
    if (squared == 0) return rate;
    rates += rate / (squared * squared);
    weights += 1 / (squared * squared);
  }
  return rates / weights;
}

double waves_of(const Gemm& gemm, const Tile& tile, int sms) {
  return std::ceil(std::ceil(gemm.m / tile.m) * std::ceil(gemm.n / tile.n) / sms);
}

}  // namespace

double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm, int sms_aside) {
  const int sms = profile.sms > sms_aside ? profile.sms - sms_aside : profile.sms;
  if (!profile.gemm_measured.empty())
    return gemm.flops() / measured_rate(profile.gemm_measured, gemm) * profile.sms / sms;
  const double sm_rate = profile.peak_flops * profile.gemm_efficiency * profile.gemm_sustained / profile.sms;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double waves = waves_of(gemm, tile, sms);
    best = std::min(best,
                    waves * 2 * tile.m * tile.n * (gemm.k + profile.gemm_overhead_k) / (sm_rate * tile.rate));
  }
  return best;
}

double fused_seconds(const HardwareProfile& profile, const Gemm& gemm, double collective) {
  const double compute = gemm_seconds(profile, gemm);
  return std::max(compute, collective) +
         std::min(compute, collective) / waves_of(gemm, {128, 256, 1}, profile.sms);
}

}  // namespace stp
