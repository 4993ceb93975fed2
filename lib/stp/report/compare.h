// Our figures beside the published ones: differences, errors of calibrated and predicted rows apart,
// verdicts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "stp/base/json_input.h"

namespace stp {

/// How a scenario wants to be compared (its field "compare").
struct Comparison {
  std::string gain_of, gain_over;      // schedules; empty: no gain is compared
  SharedJson calibration;              // an array: rows that hold all fields of one of these were fitted to;
                                       // null: there are none
  double throughput_tolerance = 0.03;  // mean absolute relative error
  double throughput_worst_tolerance = 0.09;  // largest absolute relative error
  double gain_tolerance_points = 1.5;        // mean absolute error, percentage points
  double memory_tolerance = 0.05;            // mean absolute relative error
  std::string not_testable;                  // why the rows are not to be judged; empty: they are
  double idle_tolerance = 0.01, chunks_tolerance = 0.01;  // likewise, of closed forms
  double tp_share_tolerance = 0.1;  // likewise, of the share of TP communication in a layer's forward
};
Comparison read_comparison(JsonInput input);
nlohmann::json to_json(const Comparison& comparison);

/// Adds to every row `published` (the figures of results/published that speak of its configuration, or null),
/// `difference` (ours / published − 1 each) and `calibration`. A published row speaks of ours if they agree
/// in every field that the published row has besides figures. Without published files every `published` is
/// null.
void attach_published(nlohmann::json& rows, const std::string& folder,
                      const std::optional<Comparison>& comparison);

/// The scenario's line of summary.json. Errors are over rows that did not calibrate, relative but for the
/// gain's; `calibrated` holds the errors of the others.
nlohmann::json summarise(const std::string& id, const nlohmann::json& record,
                         const std::optional<Comparison>& comparison);

}  // namespace stp
