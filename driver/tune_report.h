// What `stp tune` found, as text, JSON and files of the first choice.
#pragma once

#include <filesystem>

#include "tuner.h"

namespace stp {

/// The share within which two steps of a GPU count as equal, and where it is from, in words.
struct ErrorBand {
  double share;
  std::string source;
};
/// Of the suite's experiments with published throughputs, the median of their mean errors: of those on this
/// cluster, or of all if these have fewer than ten rows.
ErrorBand error_band(const std::string& cluster);

/// The table of the best, why the first is first, and what was left out.
std::string tune_text(const TuneSpace& space, const TuneResult& result, const ErrorBand& band);
/// results/schema/tune.schema.json.
nlohmann::json tune_json(const TuneSpace& space, const TuneResult& result, const ErrorBand& band,
                         const Arguments& argv);

/// Writes the first choice's scenario, its order as PyTorch's CSV, its timeline, and Megatron-Core's flags if
/// it can run it.
void write_choice(const std::filesystem::path& folder, const Tuned& choice);

/// Why nothing fits, by how much, and what would help.
InputError nothing_fits(const TuneSpace& space, const TuneResult& result);

}  // namespace stp
