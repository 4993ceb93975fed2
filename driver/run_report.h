// The output of `stp run`: a table, prediction errors, and parity.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "option_columns.h"
#include "run_measured.h"

namespace stp {

class RunReport {
 public:
  /// `predicted_by`: the profile that predicts each step, if any. `one_device`: all ranks take turns on one
  /// device.
  RunReport(const DeviceOptions& devices, std::optional<std::string> predicted_by, bool one_device);

  /// What the report says of a run.
  [[nodiscard]] static nlohmann::json line_of(const MeasuredRun& run);
  void add(const nlohmann::json& line, const Experiment& experiment, const ScheduleChoice& choice);
  /// Counts a combination that its schedule has refused.
  void add_refused() { ++refused_; }

  /// The table and its notes.
  [[nodiscard]] std::string text() const;
  /// The cases that do not equal one rank; "" if there are none.
  [[nodiscard]] std::string failure() const;

 private:
  [[nodiscard]] std::string prediction_errors() const;

  std::optional<std::string> predicted_by_;
  bool one_device_, replayed_;
  std::vector<std::string> head_;
  OptionColumns options_{{"model", "type", "microbatches"}};
  std::vector<std::vector<std::string>> lines_;
  std::array<std::vector<double>, 2>
      errors_;         // of predicted steps: ranks with processors of their own, others
  int disturbed_ = 0;  // rows without an error among these
  size_t compared_ = 0, refused_ = 0;
  std::vector<std::string> broken_;  // cases without parity
};

}  // namespace stp
