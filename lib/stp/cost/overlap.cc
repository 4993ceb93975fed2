#include "stp/cost/overlap.h"

#include <algorithm>

namespace stp {

OverlapFigures overlap_figures(const OverlapTimes& times) {
  OverlapFigures figures{};
  figures.together_s = std::max(times.compute_together, times.communication_together);
  figures.compute_slowdown = times.compute_together / times.compute_alone - 1;
  figures.communication_slowdown = times.communication_together / times.communication_alone - 1;
  const double both = std::min(times.compute_together, times.communication_together);
  // alone = rate · both + (together − both) for either; the shorter one has finished.
  figures.compute_rate = (times.compute_alone - (times.compute_together - both)) / both;
  figures.communication_rate = (times.communication_alone - (times.communication_together - both)) / both;
  figures.exposed_s = figures.together_s - times.compute_alone;
  figures.exposed_share = figures.exposed_s / times.communication_alone;
  figures.saved_s = times.compute_alone + times.communication_alone - figures.together_s;
  return figures;
}

}  // namespace stp
