// Every schedule generator of the suite, by name. The list is made at configure time from the files
// themselves: lib/stp/schedule/stp*.cc and baselines/*.cc, each of which defines `schedule_<file name>`.
#pragma once

#include <string>
#include <vector>

#include "stp/schedule/generator.h"

namespace stp {

/// All generators, STP's first, then by file name.
const std::vector<const Generator*>& generators();

/// The generator called `name`; InputError that lists the names if there is none.
const Generator& find_generator(const std::string& name);

}  // namespace stp
