// The command line of `stp`: every command's options, with CLI11, which no other source of the driver
// includes.
#pragma once

namespace stp {

/// Runs the command that `argv` names. Returns the program's exit code (2 for an invalid command line), and
/// prints on standard error why it is not 0; exceptions of the command go to the caller.
int run_command_line(int argc, char** argv);

}  // namespace stp
