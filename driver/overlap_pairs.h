// Scenarios of pairs: a matrix product and an all-reduce of one group, alone and together, on a cluster. No
// schedule, no model: the physics under the schedules.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scenario.h"
#include "stp/cluster/profile.h"
#include "stp/cost/overlap.h"

namespace stp {

struct OverlapPair {
  std::string name;
  Gemm gemm;
  double bytes;  // of the all-reduce
  int ranks;
  struct Published {
    double gemm_s, all_reduce_s, serial_s, together_s;
  };
  std::optional<Published> published;
};

struct PairsScenario {
  std::string file, name, title;
  NamedData cluster;
  HardwareProfile profile;
  std::vector<OverlapPair> pairs;
  std::string calibrated;  // what of the profile comes from these very pairs; "": nothing
  SharedJson pairs_as_read;

  /// The scenario as run, for the result record.
  [[nodiscard]] nlohmann::json as_run() const;
};

/// Whether the scenario that `word` (a path, or a name of the suite's) stands for is one of pairs.
bool is_pairs_scenario(const std::string& word);
/// InputError that names file, field and remedy for anything wrong.
PairsScenario read_pairs_scenario(const std::string& word);

/// Simulates every pair: the rows of the record. Two predictions each, kept apart: of the shapes, all from
/// the profile, and, where times are published, of the published times alone and the profile's contention.
nlohmann::json simulate_pairs(const PairsScenario& scenario);

/// How far the time together, predicted from the published times alone, may be from the published one.
inline constexpr double kOverlapTolerance = 0.05;

/// The scenario's line of summary.json. What the profile was made from counts as calibrated, but is judged:
/// by the worst pair.
nlohmann::json summarise_pairs(const PairsScenario& scenario, const nlohmann::json& record);

}  // namespace stp
