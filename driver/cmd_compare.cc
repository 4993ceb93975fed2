#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "commands.h"
#include "compare_screen.h"
#include "output_folder.h"
#include "plots.h"
#include "profile_comparison.h"
#include "stp/base/json_input.h"
#include "stp/report/benchmark_comparison.h"
#include "stp/report/file_label.h"
#include "stp/report/record.h"
#include "stp/report/record_comparison.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct CompareOptions {
  std::vector<std::string> files;
  std::string json, plot;
  double least_difference = 5;  // per cent
  bool machines = false;        // profiles, not files
  ProfileComparisonOptions profiles{.profiles = {}, .scenarios = {"llm-a800", "llm-h20"}, .schedules = {}};
};

enum class Kind { record, benchmarks };

std::string describe(Kind kind) {
  return kind == Kind::record ? "a result record" : "a file of Google Benchmark";
}

struct Input {
  Kind kind;
  json content;
};

Input read_input(const std::string& path) {
  const std::string text = read_file(path), clean = without_non_finite(text);
  json content = parse_json(clean, path);
  if (is_benchmark_file(content)) return {Kind::benchmarks, std::move(content)};
  if (clean != text) content = parse_json(text, path);  // refuses what is not finite
  if (is_record(content)) return {Kind::record, std::move(content)};
  if (content.is_object() && content.contains("accelerator"))
    throw InputError(path, "", "is a hardware profile",
                     "compare profiles: stp compare --profiles " + path + " …");
  if (content.is_object() && content.contains("schedules"))
    throw InputError(path, "", "is a scenario", "make a record of it: stp simulate " + path + " --json FILE");
  throw InputError(path, "", "is neither " + describe(Kind::record) + " nor " + describe(Kind::benchmarks),
                   "name what stp simulate, run or reproduce wrote, or what a benchmark wrote with "
                   "--benchmark_format=json");
}

json compare_files(const std::vector<std::string>& paths, const VerdictRule& rule) {
  if (paths.size() < 2)
    throw InputError("", "FILE", std::to_string(paths.size()) + " file(s) are nothing to compare",
                     "name two or more, or --profiles");
  if (paths.size() > kMostFiles)
    throw InputError("", "FILE", std::to_string(paths.size()) + " files are too many",
                     "name at most " + std::to_string(kMostFiles));
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    inputs.push_back(read_input(path));
    if (inputs.back().kind != inputs[0].kind)
      throw InputError(
          path, "",
          "is " + describe(inputs.back().kind) + ", but " + paths[0] + " is " + describe(inputs[0].kind),
          "compare files of one kind");
  }
  if (inputs[0].kind == Kind::benchmarks) {
    std::vector<BenchmarkFile> files;
    for (size_t i = 0; i < paths.size(); ++i) files.push_back(read_benchmarks(inputs[i].content, paths[i]));
    return compare_benchmarks(files, rule);
  }
  std::vector<RecordFile> files;
  for (size_t i = 0; i < paths.size(); ++i) files.push_back(read_record(inputs[i].content, paths[i]));
  return compare_records(files, rule);
}

// A folder that is gone when this is.
class ScratchFolder {
 public:
  ScratchFolder() : path_((fs::temp_directory_path() / "stp-compare-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error(path_ + ": cannot be created");
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] fs::path path() const { return path_; }

 private:
  std::string path_;
};

std::string drawn(const std::string& comparison, const std::string& target) {
  const ScratchFolder folder;
  const fs::path told = folder.path() / "comparison.json",
                 picture = folder.path() / ("plot" + fs::path(target).extension().string());
  write_new_file(told, comparison);
  run_plots("compare.py", {told.string(), picture.string()}, "leave --plot out");
  return read_file(picture);
}

void check_outputs(const CompareOptions& options) {
  refuse_existing(options.json, "--json");
  refuse_existing(options.plot, "--plot");
  if (options.plot.empty()) return;
  const std::string extension = fs::path(options.plot).extension();
  if (extension != ".png" && extension != ".svg")
    throw InputError(options.plot, "--plot", "ends neither in .png nor in .svg", "name a .png or .svg file");
}

void compare_command(const CompareOptions& options, const Invocation& invocation) {
  check_outputs(options);
  if (options.machines && !options.files.empty())
    throw InputError(options.files[0], "--profiles", "compares machines, and this is a file of results",
                     "compare results without --profiles, machines without files before it");
  json comparison = options.machines
                        ? compare_profiles(options.profiles)
                        : compare_files(options.files, {.least_difference = options.least_difference / 100});
  comparison["schema_version"] = "1.0.0";
  comparison.update(origin(invocation.argv));
  const std::string text = record_text(comparison);
  const std::string picture = options.plot.empty() ? "" : drawn(text, options.plot);
  if (!options.json.empty() && options.json != "-") write_new_file(options.json, text);
  if (!options.plot.empty()) write_new_file(options.plot, picture);
  if (options.json == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  const std::string screen = options.machines                     ? profiles_screen(comparison)
                             : comparison.at("kind") == "records" ? records_screen(comparison)
                                                                  : benchmarks_screen(comparison);
  std::fputs(screen.c_str(), stdout);
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
