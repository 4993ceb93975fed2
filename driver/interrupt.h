// Signals that end the program: SIGINT (Ctrl-C), SIGTERM and SIGHUP, unless it was started to ignore them.
// The exit code is 128 + the signal's number.
#pragma once

#include <stdexcept>
#include <string>

namespace stp {

/// Thrown when work ends because of a signal.
class Interrupted : public std::runtime_error {
 public:
  /// `kept`: what remains of the work, for the message.
  explicit Interrupted(const std::string& kept);
  Interrupted();  // says what note_kept() was told; at first that nothing was written
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// From now on a signal ends the program with a message: at once, for work that has nothing to keep, or
/// `late`, after 20 seconds or at the next of its kind, in all processes but the first, which ends them when
/// it has said what is kept.
void end_at_interrupts(bool late = false);
/// What remains of the work from now on. Not for several threads.
void note_kept(const std::string& kept);
/// From now on the first signal is only noted (and the user told after a second, if the program still works);
/// the next of its kind ends the program.
void note_interrupts();
/// Whether a signal was noted.
bool interrupted();
/// Throws Interrupted if a signal was noted. Call it between pieces of work.
void check_interrupted();

}  // namespace stp
