// The commands of `stp`, their options and their help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "commands.h"

namespace stp {

/// Adds all commands. Those that end with an exit code of their own set `status`.
void add_commands(CLI::App& app, const Arguments& argv, int& status);
void add_tune(CLI::App& app, const Arguments& argv);

/// Accepts numbers in [low, high]; CLI::Range accepts nan, and CLI::PositiveNumber names a limit of 309
/// digits.
inline CLI::Validator within(double low, double high) {
  const std::string range = "[" + shown("%.12g", low) + " - " + shown("%.12g", high) + "]";
  return {[=](const std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
            return text + " is not a number in " + range;
          },
          "FLOAT in " + range};
}

/// Adds --set.
inline CLI::Option* add_set(CLI::App* command, std::vector<std::string>& set) {
  return command
      ->add_option(
          "--set", set,
          "KEY=VALUE: in place of what files say, a field of the scenario (parallel.tp=8), or of its "
          "cluster's or model's file (cluster.peak_tflops=400, model.num_hidden_layers=48); null removes it")
      ->type_name("KEY=VALUE");
}

/// The words for a command that `app` does not have.
std::string unknown_command(const CLI::App& app, const std::string& word);

}  // namespace stp
