// Ending by Ctrl-C or a batch system's signal as by an error: nothing half-written stays behind.
#pragma once

namespace stp {

/// From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending the program; a second one ends it.
void note_interrupts();
/// Throws std::runtime_error if a signal was noted. To be called between pieces of work.
void check_interrupted();

}  // namespace stp
