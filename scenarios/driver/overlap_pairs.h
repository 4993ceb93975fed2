// Scenarios of pairs: a matrix product and an all-reduce of one group, alone and together, on a cluster. No
// schedule, no model: the physics under the schedules.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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
  HardwareProfile profile;
  std::vector<OverlapPair> pairs;
  nlohmann::json as_read, profile_json;
};

/// Whether the scenario that `word` (a path, or a name of the suite's) stands for is one of pairs.
bool is_pairs_scenario(const std::string& word);
/// InputError that names file, field and remedy for anything wrong.
PairsScenario read_pairs_scenario(const std::string& word);

struct OverlapPrediction {
  double gemm_s, all_reduce_s;  // alone, of the shapes
  OverlapFigures figures;       // together
  /// From the published times alone: the contention's own test, whatever the shapes.
  std::optional<OverlapFigures> from_published;
};
/// By the engine, on a Program of the two ops.
OverlapPrediction predict_overlap(const OverlapPair& pair, const HardwareProfile& profile);

/// One row of the record.
nlohmann::json to_json(const OverlapPair& pair, const OverlapPrediction& prediction);

/// How far the predicted time together may be from the published one.
inline constexpr double kOverlapTolerance = 0.05;

}  // namespace stp
