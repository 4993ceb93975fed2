// The commands that need backends. stp-run has them; stp executes stp-run (exec_stp_run.cc).
#pragma once

#include <string>
#include <vector>

namespace stp {

using Arguments = std::vector<std::string>;  // the program's, its name first

struct RunOptions;  // commands.h
/// Returns the exit code.
int run_command(const RunOptions& options, const Arguments& argv);
/// Prints what each backend finds of what it needs. False if there is one for devices, and no device that it
/// can use.
bool doctor_command(const Arguments& argv);
/// The version and what is built in.
std::string version_text(const Arguments& argv);

}  // namespace stp
