// `stp`: the suite's one program. Exit codes: 0 success, 1 failure, 2 invalid input.
#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "stp/base/allocator.h"
#include "stp/base/error.h"

int main(int argc, char** argv) {
  stp::keep_freed_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit on file sizes then fails, and is reported
  try {
    return stp::run_command_line(argc, argv);
  } catch (const stp::InputError& error) {
    std::fprintf(stderr, "stp: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stp: %s\n", error.what());
    return 1;
  }
}
