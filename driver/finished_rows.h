// Rows of a sweep as they are finished, in a file beside its output: a call that was killed or interrupted
// goes on from them when it is repeated.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "scenario.h"
#include "stp/base/error.h"

namespace stp {

class FinishedRows {
 public:
  /// They are in `output`.rows. Nothing is kept if `output` is "", "-" or a device.
  explicit FinishedRows(const std::string& output);

  /// Their file; "": nothing is kept.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// For the message of an interruption; "" if none are finished.
  [[nodiscard]] std::string how_to_go_on() const;
  /// What keep() got of the same row of this build of the program; null if it was not finished. `others`:
  /// what the row depends on beside configuration and schedule.
  [[nodiscard]] nlohmann::json find(const Experiment& experiment, const ScheduleChoice& choice,
                                    const nlohmann::json& others = {}) const;
  void keep(const Experiment& experiment, const ScheduleChoice& choice, const nlohmann::json& others,
            nlohmann::json row);
  /// `error`, which ends the call before its output is written: rows of an earlier call stay, and it says so;
  /// those of this one go.
  [[nodiscard]] InputError refused(const InputError& error) const;
  /// When the output is written.
  void remove() const;

 private:
  std::string path_;
  std::map<std::string, nlohmann::json> rows_;  // by what they depend on
};

}  // namespace stp
