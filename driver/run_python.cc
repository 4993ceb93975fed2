#include "run_python.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "interrupt.h"
#include "stp/base/data.h"
#include "stp/base/error.h"

namespace stp {

std::string program_beside(const std::string& name, const std::string& remedy) {
  std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (access(path.c_str(), X_OK) != 0) throw InputError(path, "", "is needed, but is not built", remedy);
  return path;
}

std::optional<int> run_program(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{program.c_str()};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  note_interrupts();
  std::fflush(stdout);
  pid_t child = 0;
  if (posix_spawnp(&child, argv[0], nullptr, nullptr, const_cast<char**>(argv.data()), environ) != 0)
    return {};
  int status = 0;
  // Polls, because a signal may also arrive just before a blocking wait. A signal ends both processes.
  for (pid_t ended = 0; ended == 0 || (ended < 0 && errno == EINTR);) {
    if (interrupted()) kill(child, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended = waitpid(child, &status, WNOHANG);
  }
  check_interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int run_python(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without) {
  const char* set = std::getenv("STP_PYTHON");
  const std::string python = set != nullptr && *set != '\0' ? set : STP_PYTHON;
  const std::string alternative = without.empty() ? "" : ", or " + without;
  if (python.empty())
    throw InputError("", "Python 3", "was not found with the packages needed when stp was built",
                     "install " STP_PYTHON_PACKAGES
                     " and configure again, or set STP_PYTHON; only stp compare and plots need it" +
                         alternative);
  std::vector<std::string> words{data_path(script)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (const auto status = run_program(python, words)) return *status;
  throw InputError(python, "Python 3", "cannot be started",
                   "set STP_PYTHON to a Python 3 with the packages of " STP_PYTHON_PACKAGES
                   "; only stp compare and plots need it" +
                       alternative);
}

std::string failure_of_python(const std::string& script, const std::vector<std::string>& arguments) {
  try {
    return run_python(script, arguments) == 0 ? "" : script + " failed";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace stp
