// Starts Python programs: `stp compare` and the plots of reports.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// Runs `script`, a data file ("plots/compare.py"), with `arguments`, by $STP_PYTHON, else by the build's
/// Python. Returns its exit status; the script prints the reason if that is not 0. Throws InputError if there
/// is no such Python; `without` is a remedy that needs no Python, if there is one.
int run_python(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without = "");

}  // namespace stp
