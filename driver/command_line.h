// The command line of `stp`: every command's options, by CLI11, which no other source of the driver includes.
#pragma once

namespace stp {

/// Runs the command that `argv` names. Returns the program's exit code, 2 for a command line that cannot be
/// understood, after saying on standard error why it is not 0; what the command throws is the caller's.
int run_command_line(int argc, char** argv);

}  // namespace stp
