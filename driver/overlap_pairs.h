// Scenarios of pairs: a GEMM and an all-reduce, alone and together, on a cluster, without schedule and model.
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
  double bytes;  // bytes of the all-reduce
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
  std::string calibrated;  // values of the profile that were fitted to these pairs; "": none
  SharedJson pairs_as_read;

  /// The scenario as run, for the result record.
  [[nodiscard]] nlohmann::json as_run() const;
};

/// Whether the scenario `word` (a path, or a name in the suite) has pairs.
bool is_pairs_scenario(const std::string& word);
/// Throws InputError that names file, field and remedy for any error.
PairsScenario read_pairs_scenario(const std::string& word, const Changes& changes = {});

/// Simulates every pair and returns the record's rows, with two separate predictions: from shapes and profile
/// and, if times are published, from the published times alone and the profile's contention.
nlohmann::json simulate_pairs(const PairsScenario& scenario);

/// Tolerance of the time together, if predicted from the published times alone.
inline constexpr double kOverlapTolerance = 0.05;

/// The scenario's line of summary.json. Pairs that the profile was fitted to count as calibrated, but also
/// get a verdict, by the maximum error.
nlohmann::json summarise_pairs(const PairsScenario& scenario, const nlohmann::json& record);

}  // namespace stp
