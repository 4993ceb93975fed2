// What needs Python: `stp compare` and the plots of reports. Its scripts are run as programs of their own.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// Runs `script`, a data file ("analysis/compare.py"), with `arguments`, by $STP_PYTHON, else the Python
/// found when this was built. Returns its exit status; it says on standard error why that is not 0.
/// InputError if there is no such Python; `without` tells how to do without, if one can.
int run_python(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without = "");

}  // namespace stp
