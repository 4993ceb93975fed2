// The commands that need backends, in `stp`: it executes stp-run, which has the same commands, in its place.
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "backend_commands.h"
#include "run_python.h"

namespace stp {
namespace {

[[noreturn]] void exec_stp_run(const Arguments& argv) {
  const std::string program = program_beside("stp-run", "build the target stp_run, or copy it there, too");
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw std::system_error(errno, std::generic_category(), program);
}

}  // namespace

int run_command(const RunOptions&, const Arguments& argv) { exec_stp_run(argv); }
bool doctor_command(const Arguments& argv) { exec_stp_run(argv); }
std::string version_text(const Arguments& argv) { exec_stp_run(argv); }

}  // namespace stp
