// Ctrl-C or a batch system's signal ends the program like an error: no partial output remains.
#pragma once

namespace stp {

/// From now on a first SIGINT, SIGTERM or SIGHUP is only noted; a second one ends the program.
void note_interrupts();
/// Whether one was.
bool interrupted();
/// Throws std::runtime_error if a signal was noted. To be called between pieces of work.
void check_interrupted();

}  // namespace stp
