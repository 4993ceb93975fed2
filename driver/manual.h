// Texts made from the command line's own description: its help, a man page, shell completion.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace stp {

/// Makes help: descriptions are wrapped to the columns of the screen.
std::shared_ptr<CLI::FormatterBase> help_in_columns();

/// The end of a command's help: its examples, one a line, and what exit codes mean.
std::string help_footer(const std::vector<std::string>& examples);

/// The man page stp(1) in roff: all commands with their options and footers.
std::string man_page(const CLI::App& app, const std::string& version);

/// The shells that completion() knows.
const std::vector<std::string>& completed_shells();
/// A script for bash, zsh or fish: commands, options, and, through `stp list`, names of the suite's files
/// where an option or positional is a SCENARIO, PROFILE or SCHEDULE.
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace stp
