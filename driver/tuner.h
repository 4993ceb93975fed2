// The search of `stp tune`: bounds and memory first, simulations of what they leave, best first.
#pragma once

#include <mutex>
#include <optional>

#include "finished_rows.h"
#include "run_simulated.h"
#include "tune_space.h"

namespace stp {

/// What a simulation says of a configuration.
struct StepOutcome {
  double step_s, tokens_per_s_per_gpu, mfu;
  double peak_gb, margin_gb;       // of the fullest rank; the GPU's memory minus that
  double exposed_share, pp_share;  // of the busiest rank's step: its own communication, the pipeline's bubble
  double lower_bound_s;            // of every order (lib/stp/cost/step_bound.h)
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepOutcome, step_s, tokens_per_s_per_gpu, mfu, peak_gb, margin_gb,
                                   exposed_share, pp_share, lower_bound_s)

/// A configuration that fits.
struct Tuned {
  size_t id;              // its place in the space
  Experiment experiment;  // with its one schedule and its layers
  StepOutcome outcome{};
  double bound_s;  // below every order's step
  Fit fit;
  std::vector<std::string> complicated{};  // what makes it less simple, in words

  [[nodiscard]] const ScheduleChoice& choice() const { return experiment.schedules.front(); }
  /// "stp, tp 4 pp 8 dp 2 …"
  [[nodiscard]] std::string name() const;
};

struct TuneCounts {
  size_t configurations = 0, simulated = 0, reused = 0;  // reused: of an interrupted search
  size_t unfit = 0, needless = 0, bounded = 0, same = 0;
  Refused refused;
};

struct TuneResult {
  std::vector<Tuned> best;  // the ten best: equals of the fastest, simple ones first, then slower ones; if
                            // the fastest is not among them, it is the last
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
