// Comparison of our figures with published figures: differences, errors of calibrated and of predicted rows,
// and verdicts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "stp/base/json_input.h"

namespace stp {

/// How a scenario is compared (its field "compare").
struct Comparison {
  std::string gain_of, gain_over;  // schedules; empty: no gain is compared
  SharedJson calibration;          // an array of patterns: rows with all fields of one were fitted to;
                                   // null: none
  SharedJson memory_calibration;   // patterns of rows whose memory alone was: the saved tensors were
                                   // completed with it; null: none
  // By criterion: tolerance of a mean or worst absolute error, relative or in percentage points.
  std::map<std::string, double> tolerance{{"throughput_error_mean", 0.03}, {"throughput_error_worst", 0.09},
                                          {"gain_error_points_mean", 1.5}, {"memory_error_mean", 0.05},
                                          {"idle_error_mean", 0.01},       {"chunks_error_mean", 0.01},
                                          {"tp_share_error_mean", 0.1}};
  std::string not_testable;  // reason for no verdict; empty: rows get one
};
Comparison read_comparison(JsonInput input);
nlohmann::json to_json(const Comparison& comparison);

/// Errors of one kind, over one set of rows.
struct Errors {
  double sum = 0, worst = 0;  // of absolute values
  int count = 0;
  std::string worst_row;

  void add(double error, const std::string& row);
  /// {"error", "row"}, as the mean null if there are none.
  [[nodiscard]] nlohmann::json worst_json() const;
  [[nodiscard]] nlohmann::json mean() const;
};

/// Adds to every row `published` (the figures of results/published for its configuration, or null),
/// `difference` (ours / published − 1, each) and `calibration`. A published row matches ours if all its
/// fields except figures and `fits` are equal (false: or absent), even if the row ran out of memory. Without
/// published files every `published` is null.
void attach_published(nlohmann::json& rows, const std::string& folder,
                      const std::optional<Comparison>& comparison);

/// Adds to every row of attach_published() its `gain` in throughput over `gain_over` in the same
/// configuration; without such a row, over 1F1B-I or the first schedule; null if there is none.
void attach_gains(nlohmann::json& rows, const std::optional<Comparison>& comparison);

/// The scenario's line of summary.json, from rows with gains. Errors are relative, except the gain's, and
/// cover predicted rows; `calibrated` has the errors of calibrated rows.
nlohmann::json summarise(const std::string& id, const nlohmann::json& record,
                         const std::optional<Comparison>& comparison);

}  // namespace stp
