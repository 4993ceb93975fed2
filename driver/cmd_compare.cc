#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output_folder.h"
#include "run_python.h"
#include "stp/base/json_input.h"
#include "stp/report/record.h"

namespace stp {
namespace {

using nlohmann::json;

void check_files(const CompareOptions& options) {
  check_outputs({{options.json, "--json"}, {options.plot, "--plot"}});
  if (options.plot.empty()) return;
  const std::string extension = std::filesystem::path(options.plot).extension();
  if (extension != ".png" && extension != ".svg")
    throw InputError(options.plot, "--plot", "ends neither in .png nor in .svg", "name a .png or .svg file");
}

// A file without a name that this process and its child processes can read.
std::string nameless_file(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr || std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0)
    throw std::runtime_error("a temporary file could not be written (is the disk full?)");
  return "/dev/fd/" + std::to_string(fileno(file));
}

}  // namespace

// Python compares, prints and draws. Its input from this program: the origin of the comparison, and the
// simulations of profiles.
int compare_command(const CompareOptions& options, const Arguments& argv) {
  check_files(options);
  if (options.machines && !options.files.empty())
    throw InputError(options.files[0], "--profiles", "compares machines, and this is a file of results",
                     "compare results without --profiles, machines without files before it");
  json known = origin(argv);
  if (options.machines) {
    ProfileSimulationOptions profiles = options.profiles;
    profiles.attribute_shared = options.details || !options.json.empty() || !options.plot.empty();
    known["simulated"] = simulate_profiles(profiles);
  }
  std::vector<std::string> arguments{options.details ? "--details" : "--no-details",
                                     "--json=" + options.json,
                                     "--plot=" + options.plot,
                                     "--least-difference=" + json_text(json(options.least_difference)),
                                     "--",
                                     nameless_file(record_text(known))};
  arguments.insert(arguments.end(), options.files.begin(), options.files.end());
  return run_python("plots/compare.py", arguments);
}

}  // namespace stp
