#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output_folder.h"
#include "profile_simulation.h"
#include "run_python.h"
#include "stp/base/error.h"
#include "stp/report/record.h"

namespace stp {
namespace {

using nlohmann::json;

struct CompareOptions {
  std::vector<std::string> files;
  std::string json, plot;
  double least_difference = 5;  // per cent
  bool machines = false;        // profiles, not files
  ProfileSimulationOptions profiles{.profiles = {}, .scenarios = {"llm-a800", "llm-h20"}, .schedules = {}};
};

void check_outputs(const CompareOptions& options) {
  refuse_existing(options.json, "--json");
  refuse_existing(options.plot, "--plot");
  if (options.plot.empty()) return;
  const std::string extension = std::filesystem::path(options.plot).extension();
  if (extension != ".png" && extension != ".svg")
    throw InputError(options.plot, "--plot", "ends neither in .png nor in .svg", "name a .png or .svg file");
}

// A file without a name that this process and those that it starts can read; it ends with them.
std::string nameless_file(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr || std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0)
    throw std::runtime_error("a temporary file could not be written (is the disk full?)");
  return "/dev/fd/" + std::to_string(fileno(file));
}

// Python compares, prints and draws. What only this program knows, it is given: who compares, and what
// profiles come to.
void compare_command(const CompareOptions& options, const Invocation& invocation) {
  check_outputs(options);
  if (options.machines && !options.files.empty())
    throw InputError(options.files[0], "--profiles", "compares machines, and this is a file of results",
                     "compare results without --profiles, machines without files before it");
  json known = origin(invocation.argv);
  if (options.machines) known["simulated"] = simulate_profiles(options.profiles);
  std::vector<std::string> arguments{"--json=" + options.json, "--plot=" + options.plot,
                                     "--least-difference=" + json(options.least_difference).dump(), "--",
                                     nameless_file(record_text(known))};
  arguments.insert(arguments.end(), options.files.begin(), options.files.end());
  if (const int status = run_python("analysis/compare.py", arguments); status != 0)
    throw CLI::RuntimeError(status);  // it has said why
}

}  // namespace

void add_compare(CLI::App& app, const Invocation& invocation) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Set results, benchmarks or machines side by side");
  command->add_option("FILE", options->files,
                      "Two or more result records, or files of Google Benchmark (--benchmark_format=json)");
  auto* profiles =
      command->add_option("--profiles", options->profiles.profiles,
                          "Instead of files: hardware profiles by name or file (default: all of the suite)");
  profiles->expected(0, -1);
  command
      ->add_option("--scenarios", options->profiles.scenarios,
                   "With --profiles: whose configurations (default: the paper's, llm-a800 and llm-h20)")
      ->needs(profiles);
  command
      ->add_option("--schedules", options->profiles.schedules,
                   "With --profiles: which schedules (default: those of the scenarios)")
      ->needs(profiles);
  command
      ->add_flag("--attribute-all", options->profiles.attribute_all,
                 "With --profiles: take every configuration apart by properties, not only those that all "
                 "scenarios share")
      ->needs(profiles);
  command
      ->add_option("--least-difference", options->least_difference,
                   "Per cent below which medians of measured times count as the same")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--json", options->json,
                      "Write the comparison to this new file (- for standard output)");
  command->add_option("--plot", options->plot, "Draw it into this new file, .png or .svg");
  command->callback([options, &invocation, profiles] {
    options->machines = profiles->count() > 0;
    std::erase(options->profiles.profiles, "");  // what CLI11 makes of the flag alone
    compare_command(*options, invocation);
  });
}

}  // namespace stp
