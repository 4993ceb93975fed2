// The output of `stp run`: a table, prediction errors, and parity.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "run_measured.h"
#include "table.h"

namespace stp {

/// Errors of predicted steps, separately for runs where ranks share processors.
class PredictionErrors {
 public:
  void add(double error, bool oversubscribed) { errors_[oversubscribed ? 1 : 0].push_back(error); }
  void leave_out() { ++left_out_; }
  /// The errors of the profile of that name.
  [[nodiscard]] std::string text(const std::string& profile) const;

 private:
  std::array<std::vector<double>, 2> errors_;
  int left_out_ = 0;  // rows
};

class RunReport {
 public:
  /// `predicted_by`: the name of the profile that predicts each step, if any. `one_device`: whether all ranks
  /// take turns on one device. `named`: whether configurations have names; `context_parallel`: whether one
  /// has context parallelism.
  RunReport(const DeviceOptions& devices, std::optional<std::string> predicted_by, bool one_device,
            bool named, bool context_parallel);

  void add(const MeasuredRun& run);
  /// Counts a combination that its schedule refuses.
  void add_refused() { ++refused_; }

  /// The table and its notes.
  [[nodiscard]] std::string text() const;
  /// The cases that differ from one rank; "" if none does.
  [[nodiscard]] std::string failure() const;

 private:
  void add_parity(const Result& result);
  std::vector<std::string> prediction_cells(const Result& result);

  std::optional<std::string> predicted_by_;
  bool one_device_, named_, context_parallel_, replayed_;
  Table table_;
  PredictionErrors errors_;
  size_t compared_ = 0, refused_ = 0;
  std::vector<std::string> broken_;  // cases without parity
};

}  // namespace stp
