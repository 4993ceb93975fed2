// A configuration that `stp tune` judged, and what makes it less simple.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scenario.h"
#include "stp/report/record.h"

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

bool has_braids(const Schedule& schedule);
/// What makes a configuration less simple, in words. `layers`: by virtual stage.
std::vector<std::string> complications(const Experiment& experiment, const Schedule& schedule,
                                       const std::vector<int>& layers);
/// Whether an even split is the same. The stage of an encoder has no layers.
bool is_even(const Experiment& experiment, std::vector<int> layers);
/// What its order depends on.
std::string key_of(const Experiment& experiment, int microbatches);

}  // namespace stp
