// What `stp reproduce` shows on screen: our figures beside the published ones, and the summary.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stp {

/// The rows of a result record (with `published` and `difference`) as a table: throughput, MFU and memory of
/// a model on a cluster; idle time and peak of activations under unit costs. At most `most` rows, then how
/// many are left out.
std::string comparison_table(const nlohmann::json& rows, size_t most = 100);

/// The rows of a record of pairs as a table: per pair the published times, those predicted from the published
/// times alone, and those predicted from the shapes; then, from their line of the summary, the verdict.
std::string pairs_table(const nlohmann::json& rows, const nlohmann::json& line);

/// The experiments of a summary as a table: errors over rows that did not calibrate, and verdicts.
std::string summary_table(const nlohmann::json& experiments);

}  // namespace stp
