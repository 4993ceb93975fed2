// Plots are drawn by Python: the scripts of plots/, run as programs of their own.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// Runs plots/`script` with `arguments`, by a Python that has matplotlib ($STP_PYTHON, else the one found
/// when this was built). `without` tells, for errors, how to do without plots. InputError if there is no such
/// Python, std::runtime_error if the script fails; it says why on standard error.
void run_plots(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without);

}  // namespace stp
