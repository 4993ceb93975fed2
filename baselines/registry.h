// Every schedule generator of the suite, by name. CMake makes the list at configure time from the files
// lib/stp/schedule/stp*.cc and baselines/*.cc: each line that begins with `extern const Generator schedule_`
// is one.
#pragma once

#include <string>
#include <vector>

#include "stp/schedule/generator.h"

namespace stp {

/// All generators, STP's first, then by file name.
const std::vector<const Generator*>& generators();

/// The generator called `name`. Throws InputError that lists the names if there is none.
const Generator& find_generator(const std::string& name);

}  // namespace stp
