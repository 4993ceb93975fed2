// What needs backends: `stp` becomes the program stp-run, which has the same commands and lies beside it.
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "commands.h"
#include "run_python.h"

namespace stp {
namespace {

[[noreturn]] void go_on_in_stp_run(const Arguments& argv) {
  const std::string program = program_beside("stp-run", "build the target stp_run, or copy both programs");
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw std::system_error(errno, std::generic_category(), program);
}

}  // namespace

int run_command(const RunOptions&, const Arguments& argv) { go_on_in_stp_run(argv); }
bool doctor_command(const Arguments& argv) { go_on_in_stp_run(argv); }
std::string version_text(const Arguments& argv) { go_on_in_stp_run(argv); }

}  // namespace stp
