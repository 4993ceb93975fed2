// What frameworks that train can run, for `stp tune`.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"

namespace stp {

/// What a framework can run; "" lists everything.
struct Framework {
  const char* name;
  std::vector<std::string> schedules, recompute, tp_overlap;
  bool offload;                      // whether activations go to the host
  const char* fields;                // of a scenario: defaults, as JSON
  const char* single_chunk_release;  // `release` with one chunk a rank; "": as for others
  int vocab_multiple;                // make_vocab_size_divisible_by of models that name none; 0: none
  bool vision;                       // whether it trains vision encoders
};
const std::vector<Framework>& frameworks();
/// Whether it runs a schedule with so many chunks a rank.
bool runs_chunks(const Framework& framework, const std::string& schedule, int chunks, int pp);
/// Whether it runs an experiment's schedule and options; its layers must be known.
bool runs(const Framework& framework, const Experiment& one);
/// The one of this name, or InputError.
const Framework& find_framework(const std::string& name);

}  // namespace stp
