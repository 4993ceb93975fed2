// What makes a row smaller that does not fit into its GPU.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"
#include "stp/report/record.h"

namespace stp {

/// A change of a row's configuration, simulated.
struct Remedy {
  std::string change;       // as --set takes it: "zero=1"
  int gpus;                 // that it then takes
  double saved_gb, faster;  // faster: of tokens per second and GPU, relative
  Fit fits;
};

/// The changes that the suite accepts and that need less memory, those that cost the least throughput first.
/// `result` is that of `choice` in `experiment`, a model on a cluster; `file` is its scenario's.
std::vector<Remedy> remedies(const Result& result, const ScheduleChoice& choice, const Experiment& experiment,
                             const std::string& file);

/// The same of a choice that lacks memory, in words: "zero=1 saves 3.5 GB and fits, …"; "" for none. Which
/// fit, fit_of() says with `peak_error`.
std::string remedies_text(const ScheduleChoice& choice, const Experiment& experiment, const std::string& file,
                          double peak_error = 0);

}  // namespace stp
