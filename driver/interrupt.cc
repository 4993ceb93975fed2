#include "interrupt.h"

#include <csignal>
#include <stdexcept>

namespace stp {
namespace {

volatile std::sig_atomic_t noted = 0;

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { noted = 1; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return noted != 0; }

void check_interrupted() {
  if (interrupted()) throw std::runtime_error("interrupted; nothing was written");
}

}  // namespace stp
