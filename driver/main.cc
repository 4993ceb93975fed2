// `stp`: the suite's one program. Exit codes: 0 done, 1 it could not be done, 2 the input is at fault.
#include <cstdio>
#include <exception>

#include "commands.h"
#include "stp/backends/backends.h"
#include "stp/base/allocator.h"
#include "stp/base/json_input.h"
#include "stp/version.h"

int main(int argc, char** argv) {
  stp::keep_freed_memory();
  const stp::Invocation invocation{{argv, argv + argc}};
  CLI::App app{"STP: tensor and pipeline parallel schedules, simulated, run and measured"};
  std::string backends, libraries;
  for (const std::string& name : stp::backend_names()) {
    backends += (backends.empty() ? "" : ", ") + name;
    std::string of_this;
    for (const auto& [library, built_in] : stp::backend_libraries(name))
      of_this += (of_this.empty() ? "" : ", ") + library + (built_in ? " built in" : " not built in");
    if (!of_this.empty()) libraries += "\n" + name + ": " + of_this;
  }
  app.set_version_flag("--version", "stp " STP_VERSION " (" STP_GIT_REVISION
                                    ")\nevidence: simulated, measured, replayed\nbackends: " +
                                        backends + libraries);
  app.require_subcommand(1);
  stp::add_reproduce(app, invocation);
  stp::add_simulate(app, invocation);
  stp::add_run(app, invocation);
  stp::add_schedule(app);
  stp::add_validate(app);
  stp::add_trace(app, invocation);
  stp::add_compare(app, invocation);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::runtime_error("standard output could not be written");
    return 0;
  } catch (const CLI::RequiredError& error) {
    // CLI11 says of a misspelt command only that one is required.
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
      const std::string guess = stp::nearest(argv[1], commands);
      std::fprintf(stderr, "stp: there is no command \"%s\"; %s\n", argv[1],
                   guess.empty() ? "stp --help lists them" : ("did you mean " + guess + "?").c_str());
      return 2;
    }
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // of a program that was started, which has said why
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const stp::InputError& error) {
    std::fprintf(stderr, "stp: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stp: %s\n", error.what());
    return 1;
  }
}
