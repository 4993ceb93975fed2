// Values that the command line sets in place of those of files: `--set KEY=VALUE`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace stp {

/// What `--set` says. A key is the path of a scenario's field ("parallel.tp"), or "cluster." or "model." and
/// the path of a field of the file that the scenario names ("cluster.peak_tflops").
class Changes {
 public:
  Changes() = default;
  /// Words as KEY=VALUE; a value that is no JSON is a string. InputError on "--set" if one is not.
  explicit Changes(const std::vector<std::string>& words);

  /// Sets fields of a scenario; of its configurations, where they have the field themselves.
  void apply_to_scenario(nlohmann::json& scenario) const;
  /// Sets fields of a cluster's or model's file; `part` is "cluster" or "model". A value of a profile gets
  /// the source "--set".
  void apply_to_file(const std::string& part, nlohmann::json& content) const;

  /// A scenario's title; where values are set, which it may speak of, "NAME [seq=4096, parallel.tp=8]".
  [[nodiscard]] std::string title(const std::string& given, const std::string& name) const;

 private:
  struct Change {
    std::string key, value;  // as written
    std::vector<std::string> path;
  };
  std::vector<Change> changes_;
};

}  // namespace stp
