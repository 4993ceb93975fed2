// bin/microbench measures how fast a machine computes, communicates, and does both at once. It has its own
// flags and Google Benchmark's (--benchmark_filter and so on). Names select families, for example "^gemm/".
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/backends/backends.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/processes/processes.h"
#include "stp/report/record.h"
#include "stp/version.h"
#include "suite.h"

namespace {

using namespace stp::microbench;

// Facts about machine and program for the JSON's context.
void add_context(const Options& options) {
  benchmark::AddCustomContext("stp_version", STP_VERSION);
  benchmark::AddCustomContext("stp_git_revision", STP_GIT_REVISION);
  // With emulated peers only kernels are measured.
  benchmark::AddCustomContext("evidence", options.machine.peers ? "replayed" : "measured");
  if (options.machine.peers) benchmark::AddCustomContext("peers", options.machine.peers->name);
  benchmark::AddCustomContext("backend", options.machine.backend);
  benchmark::AddCustomContext("type", to_string(options.machine.type));
  benchmark::AddCustomContext("shared_processors", std::to_string(options.machine.processors));
  benchmark::AddCustomContext("steady_below", std::to_string(SteadySampler::kThrottled));
  benchmark::AddCustomContext("tokens", std::to_string(options.tokens));
  nlohmann::json system = stp::system_description();
  if (const stp::SharedJson device = stp::built_in(options.machine.backend).facts()) system.update(*device);
  for (const auto& [key, value] : system.items())
    benchmark::AddCustomContext(key, value.is_string() ? value.get<std::string>() : stp::json_text(value));
}

void choose_machine(Options& options, const std::string& backend, const std::string& peers,
                    stp::Processes& processes) {
  stp::check_processes(backend, processes, processes.count(), {});  // before the first call of the driver
  options.machine = find_machine(backend, processes.index_on_node());
  options.machine.processes = &processes;
  if (processes.count() > 1) {
    if (!peers.empty())
      throw stp::InputError("", "--peers",
                            "replace other processes, but the launcher started " +
                                std::to_string(processes.count()) + " processes",
                            "leave it out, or start one process");
    options.ranks = {processes.count()};
  }
  if (!peers.empty())
    options.machine.peers = stp::read_profile(stp::find_data_file(peers, "profiles", "", "--peers"));
}

// The flag with which `stp microbench` has flags checked, and nothing run.
constexpr const char* kCheck = "--check";

// Parses the suite's own flags; `others` gets Google Benchmark's flags. No machine without `processes`.
Options parse(int argc, char** argv, std::vector<std::string>& others, stp::Processes* processes) {
  CLI::App app{
      "Microbenchmarks of GEMMs, attention, memory, collectives, their overlap and the executor. Google "
      "Benchmark's flags are taken too: --benchmark_filter=^gemm/ runs one family, "
      "--benchmark_out=FILE.json writes a new file, --benchmark_list_tests shows what there is."};
  Options options;
  std::string backend = "cpu", peers;
  std::vector<std::string> models{"hidden-512"};
  const auto add = [&](const char* flag, auto& value, const char* what) {
    return app.add_option(flag, value, what)->capture_default_str();
  };
  app.allow_extras();
  add("--backend", backend, "The devices: cpu (ranks are threads) or cuda");
  app.add_option(
      "--peers", peers,
      "A hardware profile (a file, or the name of one of the suite's): one rank runs, and its communication "
      "takes the time of that machine's links");
  add("--models", models, "Whose shapes: files, or names in models");
  add("--tokens", options.tokens, "Tokens of a microbatch")->check(CLI::Range(2, 1 << 20));
  add("--tp", options.tp, "Tensor-parallel sizes of the shapes")->check(CLI::Range(1, 64));
  add("--ranks", options.ranks,
      "Sizes of the groups that communicate; where a launcher started several processes, all of them")
      ->check(CLI::Range(2, 64));
  add("--repetitions", options.repetitions,
      "Samples of every benchmark; from six on they have a 95 % interval")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--quick", options.quick, "Ten samples, unless --repetitions says otherwise, and fewer sizes");
  app.add_flag_callback(
      kCheck, [] {}, "Check flags alone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw stp::InputError("", "", error.what(), "see --help");
    std::exit(app.exit(error));
  }
  if (options.quick && app.count("--repetitions") == 0) options.repetitions = 10;
  if (processes != nullptr) choose_machine(options, backend, peers, *processes);
  for (const std::string& model : models)
    options.models.push_back(stp::read_model(stp::find_data_file(model, "models", "", "--models")));

  // Unless the caller says otherwise, repetitions of one benchmark are spread over the whole run: consecutive
  // repetitions share the machine's state of the moment and look steadier than they are.
  others = {argv[0], "--benchmark_enable_random_interleaving=true",
            "--benchmark_repetitions=" + std::to_string(options.repetitions)};
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("--benchmark_") && !word.starts_with("--v="))
      throw stp::InputError("", word, "is not a flag", "see --help");
    others.push_back(word);
  }
  return options;
}

// The output file of Google Benchmark, which would overwrite it silently; "": none, or a device.
std::string new_file(const std::vector<std::string>& flags) {
  const std::string flag = "--benchmark_out=";
  std::string file;
  for (const std::string& word : flags)
    if (word.starts_with(flag)) file = word.substr(flag.size());
  if (std::filesystem::is_character_file(file)) return "";
  if (!file.empty() && std::filesystem::exists(file))
    throw stp::InputError(file, "--benchmark_out", "exists, and results are never overwritten",
                          "name a new file");
  return file;
}

/// The run is given up after so many seconds without work in any process.
constexpr double kDeadlineS = 60;

constexpr size_t kNameWidth = 50;

// The name without Google Benchmark's additions.
std::string short_name(const std::string& name) {
  std::string text = name.substr(0, name.find("/iterations:"));
  if (text.size() <= kNameWidth) return text;
  constexpr size_t kHalf = (kNameWidth - 2) / 2;
  return text.substr(0, kHalf) + ".." + text.substr(text.size() - kHalf);
}

// One line, of 79 columns at most: a row's name (its middle left out if it is long), median, half of its 95 %
// interval, at most 999.9 %, and the word for its spread. `times` in µs by aggregate: median, low95, high95.
std::string narrow_line(const std::string& name, const std::map<std::string, double>& times,
                        const std::string& word) {
  const double median = times.at("median");
  constexpr double kMost = 999.9;  // larger numbers have no room and no meaning
  const double share = std::min(50 * (times.at("high95") - times.at("low95")) / median, kMost);
  const std::string width = word == kTooFew ? "" : stp::shown("+-%5.1f %%", share);
  char line[160];
  std::snprintf(line, sizeof line, "%-*s %10.2f  %9s%s%s", static_cast<int>(kNameWidth),
                short_name(name).c_str(), median, width.c_str(), word.empty() ? "" : "  ", word.c_str());
  return line;
}

// Prints rows for a terminal of 80 columns, one line each, and how many are noisy or of too few repetitions.
class NarrowTable : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override {
    std::printf("%-*s %10s  %9s\n", static_cast<int>(kNameWidth), "benchmark", "median, us", "95 %");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    std::map<std::string, double> times;
    for (const Run& run : runs) {
      const std::string name = short_name(run.run_name.str());
      if (run.error_occurred) {
        std::printf("%s\n  %s\n", name.c_str(), run.error_message.c_str());
        return;
      }
      if (run.run_type == Run::RT_Aggregate)
        times[run.aggregate_name] = run.aggregate_unit == benchmark::kPercentage ? run.real_accumulated_time
                                                                                 : run.GetAdjustedRealTime();
      else if (run.repetitions <= 1)
        std::printf("%-*s %10.2f\n", static_cast<int>(kNameWidth), name.c_str(), run.GetAdjustedRealTime());
    }
    if (!times.contains("median") || !times.contains("low95")) return;
    const std::string word = spread_word(runs.front().repetitions, times.at("noisy") > 0);
    ++rows_;
    noisy_ += word == "noisy" ? 1 : 0;
    too_few_ += word == kTooFew ? 1 : 0;
    std::printf("%s\n", narrow_line(runs.front().run_name.str(), times, word).c_str());
  }

  void Finalize() override {
    if (rows_ == 0) return;
    const std::string few = too_few_ > 0 ? ", " + std::to_string(too_few_) + " " + kTooFew : "";
    std::printf("%d rows, %d noisy%s; counters and all samples: --benchmark_out=FILE\n", rows_, noisy_,
                few.c_str());
  }

 private:
  int rows_ = 0, noisy_ = 0, too_few_ = 0;
};

// Prints rows in a narrow table, unless a flag of Google Benchmark asks for another form. Google Benchmark
// writes its file in any case.
size_t run_benchmarks(const std::vector<std::string>& flags) {
  for (const std::string& word : flags)
    if (word.starts_with("--benchmark_format") || word.starts_with("--benchmark_counters_tabular") ||
        word.starts_with("--benchmark_list_tests"))
      return benchmark::RunSpecifiedBenchmarks();
  NarrowTable table;
  return benchmark::RunSpecifiedBenchmarks(&table);
}

// Without `processes` checks the flags.
int run(int argc, char** argv, stp::Processes* processes) {
  std::vector<std::string> flags;
  const Options options = parse(argc, argv, flags, processes);
  std::vector<char*> words;
  for (std::string& word : flags) words.push_back(word.data());
  int count = static_cast<int>(words.size());
  words.push_back(nullptr);
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return 2;
  if (processes == nullptr) return 0;
  const bool alone = processes->count() == 1;
  const std::string file = processes->is_root() ? new_file(flags) : "";
  add_context(options);

  Suite suite(options);
  if (alone) {
    add_gemm(suite);
    add_attention(suite);
    add_memory(suite);
  }
  add_collective(suite);
  if (alone) {
    add_overlap(suite);
    add_executor(suite);
  }
  suite.begin();
  size_t ran = 0;
  if (processes->is_root()) {
    ran = run_benchmarks(flags);
    suite.end();
  } else {
    suite.follow();
  }
  benchmark::Shutdown();
  if (ran > 0 || !processes->is_root()) return 0;
  if (!file.empty()) std::filesystem::remove(file);
  throw stp::InputError("", "--benchmark_filter", "matches no benchmark",
                        "--benchmark_list_tests shows those that there are");
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<stp::Processes> processes;
  const bool checks = std::find(argv, argv + argc, std::string_view(kCheck)) != argv + argc;
  const auto fail = [&](const std::string& why, int code) {
    // A failure of this process must end the others, which may wait for it.
    if (processes && processes->count() > 1) processes->abort(why, code);
    std::fprintf(stderr, "%s: %s\n", checks ? "stp" : "microbench", why.c_str());
    return code;
  };
  try {
    if (!checks) processes = stp::join_processes(kDeadlineS);
    return run(argc, argv, processes.get());
  } catch (const stp::InputError& error) {
    return fail(error.what(), 2);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
