// `stp` and `stp-run`. Exit codes: 0 success, 1 failure, 2 invalid input, 128 + n a signal.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <stdexcept>

#include "add_commands.h"
#include "changes.h"
#include "commands.h"
#include "interrupt.h"
#include "manual.h"
#include "stp/base/allocator.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

// CLI11 takes an empty value for none. No argument of stp may be empty: most come from an unset variable.
void refuse_empty_arguments(const Arguments& argv) {
  for (size_t i = 1; i < argv.size(); ++i)
    if (argv[i].empty() || (argv[i].starts_with("--") && argv[i].ends_with('=')))
      throw InputError("", argv[i].empty() ? argv[i - 1] + " ''" : argv[i], "is empty",
                       "write its value, or leave it out");
}

// It leaves out what is empty between the commas of a list, too.
void refuse_empty_entries(const CLI::App& command, const Arguments& argv) {
  const CLI::Option* option = nullptr;
  for (const std::string& word : argv) {
    std::string value = word;
    if (word.starts_with("--")) {
      const size_t end = word.find('=');
      option = command.get_option_no_throw(word.substr(0, end));
      if (end == std::string::npos) continue;
      value = word.substr(end + 1);
    }
    if (option != nullptr && option->get_delimiter() == ',' &&
        ("," + value + ",").find(",,") != std::string::npos)
      throw InputError("", option->get_name(), value + " has an empty entry", "write values between commas");
  }
}

// CLI11 would only say that a command is required, or that an argument was not expected.
std::string problem_of(const CLI::App& app, const CLI::App& command, const Arguments& argv,
                       const CLI::Error& error) {
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && argv.size() > 1 &&
      !argv[1].starts_with('-') && app.get_subcommands().empty())
    return unknown_command(app, argv[1]);
  std::string problem = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return problem;
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> begun;  // an abbreviation, which CLI11 does not take
    std::ranges::copy_if(options, std::back_inserter(begun),
                         [&](const std::string& option) { return option.starts_with(name); });
    const std::string guess = begun.empty() ? nearest(name, options) : joined(begun);
    if (!guess.empty()) problem += "; did you mean " + guess + "?";
  }
  return problem;
}

// Runs the command in the arguments. Returns the exit code.
int run_command_line(int argc, char** argv) {
  const Arguments words(argv, argv + argc);
  refuse_empty_arguments(words);
  CLI::App app{"STP: tensor and pipeline parallel schedules, simulated, run and measured", "stp"};
  app.set_version_flag("-V,-v,--version", [&words] { return version_text(words); });
  app.formatter(help_in_columns());
  app.require_subcommand(1);
  app.footer(
      "stp COMMAND --help has examples. Environment: STP_DATA_DIR is the folder of the suite's data\n"
      "(default: share/stp of the installation, else the source tree), STP_PYTHON the interpreter of\n"
      "plots, NO_COLOR (not empty) turns colours off.");
  app.failure_message([&](const CLI::App*, const CLI::Error& error) {
    const CLI::App* command = &app;
    std::string name = "stp";
    for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
      command = chosen.front();
      name += " " + command->get_name();
    }
    return "stp: " + printable(problem_of(app, *command, words, error)) + "; " + name +
           " --help lists what there is\n";
  });
  int status = 0;
  add_commands(app, words, status);
  for (const CLI::App* command : app.get_subcommands({}))
    if (argc > 1 && command->get_name() == words[1]) refuse_empty_entries(*command, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return 2;  // help and version are "errors" of code 0
  } catch (const InputError& error) {
    for (const CLI::App* command : app.get_subcommands())
      if (const CLI::Option* set = command->get_option_no_throw("--set")) {
        const CLI::Option* named = command->get_option_no_throw("SCENARIO");
        throw Changes(set->results()).blamed(error, named == nullptr ? Arguments() : named->results());
      }
    throw;
  }
  if (status != 0) return status;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error("standard output could not be written");
  return 0;
}

// For what was started without one of them: writing to it fails. Else it would be another file, opened later.
void open_standard_files() {
  for (int file = 0; file <= STDERR_FILENO; ++file)
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", O_RDONLY);
}

}  // namespace

int exit_code_of(const std::exception& error) {
  if (const auto* signal = dynamic_cast<const Interrupted*>(&error)) return signal->exit_code();
  return dynamic_cast<const InputError*>(&error) != nullptr ? 2 : 1;
}

}  // namespace stp

int main(int argc, char** argv) {
  stp::open_standard_files();
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
