// Values of the command line that replace values of files: `--set KEY=VALUE`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/base/error.h"

namespace stp {

/// The changes of `--set`. A key is the path of a scenario's field ("parallel.tp"), or "cluster." or "model."
/// and the path of a field of the file that the scenario names ("cluster.peak_tflops").
class Changes {
 public:
  Changes() = default;
  /// Reads KEY=VALUE; a value that is not JSON is a string, and a file is relative to the current folder.
  /// InputError on "--set" for other words.
  explicit Changes(const std::vector<std::string>& words);

  /// Sets fields of a scenario, also in those of its configurations that have the field.
  void apply_to_scenario(nlohmann::json& scenario) const;
  /// Sets fields of a cluster's or model's file; `part` is "cluster" or "model". A profile's value gets the
  /// source "--set".
  void apply_to_file(const std::string& part, nlohmann::json& content) const;

  /// InputError if a change is of a file ("cluster" or "model") of which the scenario `file` reads none.
  void refuse_unread(const std::string& part, const std::string& file) const;

  /// The error as one of --set, if it is of a field that a change gave. `scenarios`: words for the scenarios
  /// that were read, if known; of other files are models and clusters.
  [[nodiscard]] InputError blamed(const InputError& error, const std::vector<std::string>& scenarios) const;

  /// Whether they set the field of a scenario, or a part of it.
  [[nodiscard]] bool sets(const std::string& field) const;

  /// A scenario's title; with changes, which may contradict it, "NAME [seq=4096, parallel.tp=8]".
  [[nodiscard]] std::string title(const std::string& given, const std::string& name) const;

 private:
  struct Change {
    std::string key, value;  // as written
    std::vector<std::string> path;
  };
  std::vector<Change> changes_;
};

}  // namespace stp
