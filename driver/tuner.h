// The search of `stp tune`: bounds and memory first, simulations of what they leave, best first.
#pragma once

#include <optional>

#include "finished_rows.h"
#include "tune_space.h"
#include "tuned.h"

namespace stp {

struct TuneCounts {
  size_t configurations = 0, simulated = 0, reused = 0;  // reused: of an interrupted search
  size_t unfit = 0, needless = 0, bounded = 0, same = 0;
  Refused refused;
};

struct TuneResult {
  // The ten best: equals of the fastest, simple ones first, then slower ones; then, where they are not among
  // them, the fastest, and if the first may not fit, the fastest that surely does.
  std::vector<Tuned> best;
  std::vector<StepOutcome> points;  // all that were simulated
  std::vector<std::string> names;   // of these
  size_t equals = 0;                // configurations within the band of the fastest
  TuneCounts counts;
  std::optional<Tuned> nearest;  // if none fits: the one that lacks least, without step
};

/// Searches. `band`: the share within which steps count as equal. `peak_error`: of fit_of(). Throws
/// Interrupted. What is simulated is kept in `rows`. The result depends on neither threads nor what they had,
/// but for counts.reused.
TuneResult tune(const TuneSpace& space, double band, double peak_error, bool exhaustive, FinishedRows& rows);

}  // namespace stp
