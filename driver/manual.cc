#include "manual.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "stp/base/error.h"
#include "table.h"

namespace stp {
namespace {

// What `stp list` lists, by the type that help shows of an option, or by the name of a positional.
std::string listed_kind(const CLI::Option& option) {
  static const std::map<std::string, std::string> kinds{
      {"SCENARIO", "scenarios"}, {"PROFILE", "profiles"}, {"SCHEDULE", "schedules"}};
  const auto found = kinds.find(option.get_positional() ? option.get_name(true) : option.get_type_name());
  return found == kinds.end() ? "" : found->second;
}

// The commands with options, such as "model import".
std::vector<std::pair<std::string, const CLI::App*>> leaves_of(const CLI::App& app) {
  std::vector<std::pair<std::string, const CLI::App*>> leaves;
  for (const CLI::App* command : app.get_subcommands({})) {
    const auto below = leaves_of(*command);
    if (below.empty()) leaves.emplace_back(command->get_name(), command);
    for (const auto& [name, leaf] : below) leaves.emplace_back(command->get_name() + " " + name, leaf);
  }
  return leaves;
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  auto options = command.get_options([](const CLI::Option* option) { return !option->get_positional(); });
  for (const CLI::App* part : command.get_subcommands({}))
    for (const CLI::Option* option : options_of(*part)) options.push_back(option);
  return options;
}

std::string command_names(const CLI::App& app) {
  return joined(
      app.get_subcommands({}), [](const CLI::App* command) { return command->get_name(); }, " ");
}

// The kind of a command's positional; "" if it is a file.
std::string positional_kind(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional()) return listed_kind(*option);
  return "";
}

std::string quoted(const std::string& text) {
  std::string all;
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + all + "'";
}

std::string roff(const std::string& text) {
  std::string all;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) all += "\\&";
    if (c == '\\' || c == '-') all += '\\';
    all += c == '\\' ? 'e' : c;
    line_begins = c == '\n';
  }
  return all;
}

std::string bash_completion(const CLI::App& app) {
  std::ostringstream commands, values;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands << "    " << command->get_name() << ") kind=" << positional_kind(*command) << " options='";
    for (const CLI::Option* option : options_of(*command))
      for (const std::string& name : option->get_lnames()) {
        commands << " --" << name;
        const std::string kind = listed_kind(*option);
        if (!kind.empty())
          values << "    '" << command->get_name() << " --" << name << "') kind=" << kind << " ;;\n";
      }
    commands << " " << command_names(command->get_name() == "help" ? app : *command);
    commands << "' ;;\n";
  }
  return "# stp: completion for bash\n"
         "_stp() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} kind= options=\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         command_names(app) +
         "' -- \"$word\")\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         commands.str() +
         "  esac\n"
         "  case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}\" in\n" +
         values.str() +
         "  esac\n"
         "  if [[ $word != -* && -n $kind ]]; then options=$(stp list \"$kind\" --names 2>/dev/null); fi\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\"; compgen -f -- \"$word\")\n"
         "}\n"
         "complete -o filenames -F _stp stp\n";
}

std::string fish_completion(const CLI::App& app) {
  std::string text = "# stp: completion for fish\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    text += "complete -c stp -n __fish_use_subcommand -f -a " + name + " -d " +
            quoted(command->get_description()) + "\n";
    const std::string here = "complete -c stp -n '__fish_seen_subcommand_from " + name + "'";
    if (const std::string kind = positional_kind(*command); !kind.empty())
      text += here + " -a '(stp list " + kind + " --names)'\n";
    for (const CLI::Option* option : options_of(*command))
      for (const std::string& flag : option->get_lnames()) {
        text += here + " -l " + flag + " -d " + quoted(option->get_description());
        if (const std::string kind = listed_kind(*option); !kind.empty())
          text += " -a '(stp list " + kind + " --names)'";
        text += option->get_expected_min() > 0 && option->get_type_size() > 0 ? " -r\n" : "\n";
      }
  }
  return text;
}

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::ostringstream text;
    const std::string name = make_option_name(option, is_positional) + make_option_opts(option);
    // format_help() indents the first line alone.
    const std::string lines = wrapped("  " + name).substr(2);
    CLI::detail::format_help(text, lines, beside(make_option_desc(option)), get_column_width());
    return text.str();
  }
  std::string make_footer(const CLI::App* command) const override {
    return wrapped(CLI::Formatter::make_footer(command));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream text;
    CLI::detail::format_help(text, command->get_display_name(true), beside(command->get_description()),
                             get_column_width());
    return text.str();
  }

 private:
  // Of what stands to the right of the names.
  [[nodiscard]] std::string beside(const std::string& text) const {
    const size_t names = get_column_width(), width = Screen::of_output().width;
    return width > 2 * names ? wrapped(text, width - names) : text;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_in_columns() { return std::make_shared<WrappedHelp>(); }

std::string help_footer(const std::vector<std::string>& examples) {
  std::string text = "Examples:\n";
  for (const std::string& example : examples) text += "  " + example + "\n";
  return text +
         "\nExit codes: 0 success, 1 failure, 2 invalid input, 128 + n ended by signal n\n"
         "(130 for Ctrl-C).";
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string text = ".TH STP 1 \"\" \"stp " + version + "\"\n.SH NAME\nstp \\- " +
                     roff(app.get_description()) + "\n.SH SYNOPSIS\n.B stp\n.I command\n[options]\n";
  text += ".SH COMMANDS\n";
  for (const auto& [name, command] : leaves_of(app)) {
    text += ".SS " + name + "\n" + roff(command->get_description()) + ".\n";
    for (const CLI::Option* option : command->get_options())
      text += ".TP\n.B " +
              roff(option->get_positional() ? option->get_name(true) : option->get_name(false, true)) + "\n" +
              roff(option->get_description()) + "\n";
    text += ".PP\n.nf\n" + roff(command->get_footer()) + "\n.fi\n";
  }
  return text + ".SH ENVIRONMENT\n.nf\n" + roff(app.get_footer()) + "\n.fi\n";
}

const std::vector<std::string>& completed_shells() {
  static const std::vector<std::string> shells{"bash", "zsh", "fish"};
  return shells;
}

std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return fish_completion(app);
  return (shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + bash_completion(app);
}

}  // namespace stp
