#include "run_python.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "interrupt.h"
#include "stp/base/data.h"
#include "stp/base/error.h"

namespace stp {

std::string program_beside(const std::string& name, const std::string& remedy) {
  std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (access(path.c_str(), X_OK) != 0) throw InputError(path, "", "is needed, but is not built", remedy);
  return path;
}

namespace {

// 0 if it cannot be started. `input`, if given, becomes its standard input. The program then leads a process
// group: one signal ends it and what it started.
pid_t start(const std::string& program, const std::vector<std::string>& arguments, int input = -1) {
  std::vector<const char*> argv{program.c_str()};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  note_interrupts();
  std::fflush(stdout);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (input >= 0) {
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  }
  // A group in the background would be stopped when it writes to a terminal with `stty tostop`.
  auto* const stops = input >= 0 ? std::signal(SIGTTOU, SIG_IGN) : SIG_ERR;
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, argv[0], &actions, &attributes, const_cast<char**>(argv.data()), environ);
  if (stops != SIG_ERR) std::signal(SIGTTOU, stops);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : 0;
}

// An interrupt ends `signalled`: the child's process, or its process group if negative.
int wait_for(pid_t child, pid_t signalled) {
  int status = 0;
  // Polls, because a signal may also arrive just before a blocking wait.
  for (pid_t ended = 0; ended == 0 || (ended < 0 && errno == EINTR);) {
    if (interrupted()) kill(signalled, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended = waitpid(child, &status, WNOHANG);
  }
  check_interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

pid_t start_python(const std::string& script, const std::vector<std::string>& arguments,
                   const std::string& without, int input = -1) {
  const char* set = std::getenv("STP_PYTHON");
  const std::string python = set != nullptr && *set != '\0' ? set : STP_PYTHON;
  const std::string alternative = without.empty() ? "" : ", or " + without;
  if (python.empty())
    throw InputError("", "Python 3", "was not found with the packages needed when stp was built",
                     "install " STP_PYTHON_PACKAGES
                     " and configure again, or set STP_PYTHON; only stp compare and plots need it" +
                         alternative);
  std::vector<std::string> words{data_path(script)};
  if (access(words.front().c_str(), R_OK) != 0)
    throw InputError(words.front(), "STP_DATA_DIR", "the suite's script is not there",
                     "set it to the source tree, or to share/stp of an installation");
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (const pid_t child = start(python, words, input); child != 0) return child;
  throw InputError(python, "Python 3", "cannot be started",
                   "set STP_PYTHON to a Python 3 with the packages of " STP_PYTHON_PACKAGES
                   "; only stp compare and plots need it" +
                       alternative);
}

}  // namespace

std::optional<int> run_program(const std::string& program, const std::vector<std::string>& arguments) {
  const pid_t child = start(program, arguments);
  if (child == 0) return {};
  return wait_for(child, child);
}

int run_python(const std::string& script, const std::vector<std::string>& arguments) {
  const pid_t child = start_python(script, arguments, "");
  return wait_for(child, child);
}

PythonProcess::PythonProcess(const std::string& script, const std::vector<std::string>& arguments,
                             const std::string& without) {
  int ends[2];  // a socket, because a write to it need not raise SIGPIPE
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  input_ = FileDescriptor(ends[0]);
  const FileDescriptor other(ends[1]);
  process_ = start_python(script, arguments, without, ends[1]);
}

PythonProcess::~PythonProcess() {
  if (process_ == 0) return;
  kill(-process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void PythonProcess::send_line(const std::string& line) const {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(input_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return;
    check_interrupted();
    sent += count > 0 ? static_cast<size_t>(count) : 0;
  }
}

int PythonProcess::wait() {
  input_ = FileDescriptor();
  const pid_t child = std::exchange(process_, 0);
  return wait_for(child, -child);
}

std::string failure_of_python(const std::string& script, const std::vector<std::string>& arguments) {
  try {
    return run_python(script, arguments) == 0 ? "" : script + " failed";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace stp
