#include "stp/cost/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stp {
namespace {

// A tile's share of the rate of the largest: smaller tiles load more per product.
struct Tile {
  double m, n, rate;
};
constexpr Tile kTiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 128, 0.8}};

}  // namespace

double gemm_seconds(const HardwareProfile& profile, const Gemm& gemm) {
  const double sm_rate = profile.peak_flops * profile.gemm_efficiency / profile.sms;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(gemm.m / tile.m) * std::ceil(gemm.n / tile.n);
    const double waves = std::ceil(tiles / profile.sms);
    best = std::min(best,
                    waves * 2 * tile.m * tile.n * (gemm.k + profile.gemm_overhead_k) / (sm_rate * tile.rate));
  }
  return best;
}

}  // namespace stp
