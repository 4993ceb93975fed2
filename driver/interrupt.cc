#include "interrupt.h"

#include <unistd.h>

#include <csignal>
#include <vector>

namespace stp {
namespace {

volatile std::sig_atomic_t noted = 0, ends_late = 0;  // the signal's number

std::string& kept_now() {
  static std::string words = "nothing was written";
  return words;
}

// All but those that the program was started to ignore, as by nohup.
void on_interrupts(void (*handler)(int)) {
  static const std::vector<int> heard = [] {
    std::vector<int> signals{SIGINT, SIGTERM, SIGHUP};
    std::erase_if(signals, [](int signal) {
      struct sigaction inherited {};
      return sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
    });
    return signals;
  }();
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : heard) sigaction(signal, &action, nullptr);
}

// Handlers may not allocate or lock.
template <size_t N>
void say(const char (&message)[N]) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, N - 1);
}

void end(int signal) {
  say("stp: interrupted; nothing was written\n");
  _exit(128 + signal);
}

// Process 0 ends a step or a checkpoint first. Launchers kill half a minute after their signal.
void end_late(int signal) {
  ends_late = signal;
  const auto end_now = [](int) {
    say("stp: interrupted; what process 0 has written is kept\n");
    _exit(128 + static_cast<int>(ends_late));
  };
  std::signal(SIGALRM, end_now);
  std::signal(signal, end_now);
  alarm(20);
}

// A simulated step cannot stop in its middle: after a second the user learns what the program waits for.
void note(int signal) {
  noted = signal;
  std::signal(SIGALRM, [](int) {
    say("stp: interrupted; waiting for the current step to end (once more: ends at once)\n");
  });
  alarm(1);
}

}  // namespace

Interrupted::Interrupted(const std::string& kept)
    : std::runtime_error("interrupted; " + kept), exit_code_(128 + static_cast<int>(noted)) {
  alarm(0);
}

Interrupted::Interrupted() : Interrupted(kept_now()) {}

void end_at_interrupts(bool late) { on_interrupts(late ? end_late : end); }

void note_kept(const std::string& kept) { kept_now() = kept; }

void note_interrupts() { on_interrupts(note); }

bool interrupted() { return noted != 0; }

void check_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace stp
