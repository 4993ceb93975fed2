// The configurations of a scenario, as its file lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/base/json_input.h"

namespace stp {

struct ListedConfiguration {
  std::string entry;   // its place in the file: configurations[2]
  std::string choice;  // of objects of the entry's `vary`, by number: " (vary 1, 3)"; "" without
  nlohmann::json fields;
};

/// The scenario's `configurations`, which it has. An entry with `vary`, a list of lists of objects, stands
/// for all that take one object of each list beside the entry's own fields; the last list changes fastest. A
/// file's `vary` make at most 10,000.
std::vector<ListedConfiguration> configurations_of(JsonInput& scenario);

}  // namespace stp
