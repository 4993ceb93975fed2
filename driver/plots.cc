#include "plots.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "stp/base/data.h"
#include "stp/base/error.h"

namespace stp {

void run_plots(const std::string& script, const std::vector<std::string>& arguments,
               const std::string& without) {
  const char* set = std::getenv("STP_PYTHON");
  const std::string python = set != nullptr && *set != '\0' ? set : STP_PYTHON;
  if (python.empty())
    throw InputError("", "plots", "there is no Python 3 with matplotlib",
                     "install python3-matplotlib and configure again, set STP_PYTHON, or " + without);
  const std::string path = data_path("plots/" + script);
  std::vector<const char*> argv{python.c_str(), path.c_str()};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = 0;
  if (posix_spawnp(&child, argv[0], nullptr, nullptr, const_cast<char**>(argv.data()), environ) != 0)
    throw InputError(python, "plots", "cannot be started",
                     "set STP_PYTHON to a Python 3 with matplotlib, or " + without);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw std::runtime_error("plots: " + path + " failed; to do without, " + without);
}

}  // namespace stp
