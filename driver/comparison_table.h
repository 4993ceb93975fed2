// The terminal output of `stp reproduce`: our figures beside published figures, and the summary.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "option_columns.h"

namespace stp {

/// The rows of a result record (with `published` and `difference`) as a table: throughput, MFU and memory for
/// a model on a cluster; idle time and peak of activations for unit costs. At most `most` rows, then the
/// number of omitted rows. `options`: columns_of_comparison(), with the rows' options.
std::string comparison_table(const nlohmann::json& rows, const OptionColumns& options, size_t most = 100);
OptionColumns columns_of_comparison();

/// What the column "gap" says, with the widest of all rows; empty without one.
std::string gap_note(std::optional<double> widest);

/// The rows of a record of pairs as a table: per pair the published times, the predictions from the published
/// times alone, and the predictions from the shapes; then the verdict from the summary's line.
std::string pairs_table(const nlohmann::json& rows, const nlohmann::json& line);

/// The experiments of a summary as a table: errors over predicted rows, and verdicts.
std::string summary_table(const nlohmann::json& experiments);

}  // namespace stp
