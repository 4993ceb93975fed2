// Costs and savings of overlapping a GEMM and an all-reduce, from their times alone and together.
#pragma once

#include <algorithm>

#include "stp/program/program.h"

namespace stp {

/// Seconds. The `_together` times are from the common start to the end of compute or communication.
struct OverlapTimes {
  double compute_alone, communication_alone;
  double compute_together, communication_together;
};

struct OverlapFigures {
  double together_s;              // until both are done
  double compute_slowdown;        // over its whole time: together / alone − 1 (the paper's Table 11)
  double communication_slowdown;  // the same for communication
  double compute_rate;            // while both run: share of speed alone; the remainder runs at full speed
  double communication_rate;      // the same for communication
  double exposed_s;               // communication that compute does not hide: together − compute alone
  double exposed_share;           // of the communication alone
  double saved_s;                 // compared with running one after the other
};

/// Solves the rates from the times: while both run, each progresses at its rate; when the shorter has
/// finished, the longer one continues at full speed.
inline OverlapFigures overlap_figures(const OverlapTimes& times) {
  OverlapFigures figures{};
  figures.together_s = std::max(times.compute_together, times.communication_together);
  figures.compute_slowdown = times.compute_together / times.compute_alone - 1;
  figures.communication_slowdown = times.communication_together / times.communication_alone - 1;
  const double both = std::min(times.compute_together, times.communication_together);
  // Both satisfy alone = rate · both + (together − both); for the shorter one together = both.
  figures.compute_rate = (times.compute_alone - (times.compute_together - both)) / both;
  figures.communication_rate = (times.communication_alone - (times.communication_together - both)) / both;
  figures.exposed_s = figures.together_s - times.compute_alone;
  figures.exposed_share = figures.exposed_s / times.communication_alone;
  figures.saved_s = times.compute_alone + times.communication_alone - figures.together_s;
  return figures;
}

/// The inverse: a compute op and an all-reduce that start together, from their times alone and their rates.
inline OverlapFigures simulated_overlap(double compute_s, double all_reduce_s, const Contention& rates) {
  const double both = std::min(compute_s / rates.compute, all_reduce_s / rates.all_reduce);
  return overlap_figures({compute_s, all_reduce_s, both + (compute_s - rates.compute * both),
                          both + (all_reduce_s - rates.all_reduce * both)});
}

}  // namespace stp
