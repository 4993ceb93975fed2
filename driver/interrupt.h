// Ctrl-C or a batch system's signal ends the program like an error: no partial output remains.
#pragma once

namespace stp {

/// From now on the first SIGINT, SIGTERM or SIGHUP is only noted. A second one ends the program.
void note_interrupts();
/// Whether a signal was noted.
bool interrupted();
/// Throws std::runtime_error if a signal was noted. Call it between pieces of work.
void check_interrupted();

}  // namespace stp
