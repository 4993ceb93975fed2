// `stp`: the suite's one program. Exit codes: 0 success, 1 failure, 2 invalid input, 128 + n a signal.
#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "interrupt.h"
#include "stp/base/allocator.h"

int main(int argc, char** argv) {
  stp::keep_freed_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit on file sizes then fails, and is reported
  stp::end_at_interrupts();
  try {
    return stp::run_command_line(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stp: %s\n", error.what());
    return stp::exit_code_of(error);
  }
}
