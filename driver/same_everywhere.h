// What all processes of a run must have alike: else their calls do not fit together, or their data differ
// without notice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "run_measured.h"

namespace stp {

/// What this process has. Throws InputError for a text that cannot be read.
nlohmann::json same_everywhere(const Scenario& scenario, const DeviceOptions& devices);

/// Compares what all processes have, by process, as JSON texts; {"problem": …} of one that refuses its input.
/// Returns the first problem or difference, with its remedy; "" if there is none.
std::string difference_between(const std::vector<std::string>& all, const std::string& scenario_file);

}  // namespace stp
