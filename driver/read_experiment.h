// Reads one configuration of a scenario.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"

namespace stp {

/// Throws one error for all required fields that a scenario lacks. If every configuration lacks a field, the
/// error names it once, without configuration: it can be given for all of them.
void refuse_missing(JsonInput& input);

/// Returns the experiments of the configuration at `field`, one per number of microbatches. `known`: an
/// experiment's with the same model and cluster, whose files are then not read again.
std::vector<Experiment> read_experiments(JsonInput& input, const std::string& field, const std::string& name,
                                         const Changes& changes, const Experiment::Hardware* known = nullptr);

}  // namespace stp
