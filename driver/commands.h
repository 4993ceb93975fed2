// The subcommands of `stp`, each in its own file: it declares its options on the application and runs when
// named.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stp {

/// What every command may need of the program's start.
struct Invocation {
  std::vector<std::string> argv;
};

void add_reproduce(CLI::App& app, const Invocation& invocation);
void add_simulate(CLI::App& app, const Invocation& invocation);
void add_run(CLI::App& app, const Invocation& invocation);
void add_schedule(CLI::App& app);
void add_validate(CLI::App& app);
void add_trace(CLI::App& app, const Invocation& invocation);
void add_compare(CLI::App& app, const Invocation& invocation);

}  // namespace stp
