// Starts Python programs: `stp compare` and the plots of reports.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// Runs `script`, a data file ("plots/compare.py"), with `arguments`, by $STP_PYTHON, else the Python
/// found when this was built. Returns its exit status; it prints on standard error why that is not 0.
/// InputError if there is no such Python; `without` is a remedy without Python, if there is one.
int run_python(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without = "");

}  // namespace stp
