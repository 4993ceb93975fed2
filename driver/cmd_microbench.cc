#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "interrupt.h"
#include "output_folder.h"
#include "run_python.h"
#include "stp/base/error.h"

namespace stp {
namespace {

namespace fs = std::filesystem;

// Refuses flags with which the program writes no results here.
void check_flags(const std::vector<std::string>& flags, const std::string& program) {
  for (const std::string& flag : flags)
    for (const char* other : {"--benchmark_out", "--benchmark_format", "--benchmark_list_tests"})
      if (flag.starts_with(other))
        throw InputError("", flag, "is not a flag of stp microbench, which writes JSON below --out",
                         "leave it out, or run " + program);
}

// A profile needs measurements of all families, and of links that are there.
bool make_profile(const std::vector<std::string>& flags) {
  return std::ranges::none_of(flags, [](const std::string& flag) {
    return flag.starts_with("--benchmark_filter") || flag.starts_with("--peers");
  });
}

// Says why something was not made of the measurements, which are kept.
void try_python(const char* what, const std::string& script, const std::vector<std::string>& arguments) {
  if (const std::string why = failure_of_python(script, arguments); !why.empty())
    std::fprintf(stderr, "stp: no %s: %s\n", what, why.c_str());
}

// For standard error: the first figures come after a while.
void say_plan(const std::vector<std::string>& flags, const fs::path& target) {
  const std::string how =
      flags.empty() ? std::string("for ") + kQuickTime + " (--quick)" : "with " + joined(flags, {}, " ");
  std::fprintf(
      stderr, "stp: measuring %s; results go to %s (--quick, --ranks 2, --benchmark_filter=REGEX: shorter)\n",
      how.c_str(), target.c_str());
}

}  // namespace

int microbench_command(const MicrobenchOptions& options) {
  const std::string program = program_beside(
      "microbench",
      "run scripts/microbench of the source tree, which builds it; it needs Google Benchmark (Debian: "
      "libbenchmark-dev)");
  check_flags(options.flags, program);
  std::vector<std::string> flags = options.flags;
  flags.emplace_back("--check");
  if (const auto status = run_program(program, flags); status && *status != 0) return *status;
  OutputFolder folder(options.out.empty() ? new_run_folder("microbench-") : fs::path(options.out),
                      options.out.empty() ? OutputFolder::Taken::number : OutputFolder::Taken::refuse);
  say_plan(options.flags, folder.target());
  const std::string results = folder.path() / "microbench.json", profile = folder.path() / "profile.json";
  flags = options.flags;
  if (flags.empty()) flags = {"--quick"};
  flags.insert(flags.end(), {"--benchmark_out=" + results, "--benchmark_out_format=json"});
  const auto status = run_program(program, flags);
  if (!status) throw std::runtime_error(program + ": cannot be started");
  if (*status != 0) return *status;
  try {
    if (make_profile(flags)) {
      std::printf("\n");
      try_python("profile", "scripts/calibrate",
                 {"--microbench=" + results, "--profile=" + profile,
                  "--name=" + folder.target().filename().string()});
    }
    std::printf("\n");
    try_python("plot", "plots/microbench.py", {results, folder.path() / "microbench.png"});
  } catch (const Interrupted&) {
    folder.publish_interrupted();
  }
  const bool profiled = fs::exists(profile);
  folder.publish();
  std::printf("\nResults: %s\n", folder.target().c_str());
  if (profiled)
    std::printf("Predict with it: stp run cpu-prediction --backend cpu --predict %s\n",
                (folder.target() / "profile.json").c_str());
  return 0;
}

}  // namespace stp
