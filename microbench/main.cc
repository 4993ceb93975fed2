// How well a machine computes, communicates, and does both at once: bin/microbench. Its own flags stand
// beside Google Benchmark's (--benchmark_filter and so on); families are selected by name, "^gemm/" for one.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/report/record.h"
#include "stp/version.h"
#include "suite.h"

namespace {

using namespace stp::microbench;

// Facts about machine and program for the JSON's context.
void add_context(const Options& options) {
  benchmark::AddCustomContext("stp_version", STP_VERSION);
  benchmark::AddCustomContext("stp_git_revision", STP_GIT_REVISION);
  benchmark::AddCustomContext("evidence", "measured");
  benchmark::AddCustomContext("backend", options.machine.backend);
  benchmark::AddCustomContext("type", to_string(options.machine.type));
  benchmark::AddCustomContext("shared_processors", std::to_string(options.machine.processors));
  benchmark::AddCustomContext("steady_below", std::to_string(SteadySampler::kThrottled));
  benchmark::AddCustomContext("tokens", std::to_string(options.tokens));
  const nlohmann::json system = stp::system_description();
  for (const auto& [key, value] : system.items())
    benchmark::AddCustomContext(key, value.is_string() ? value.get<std::string>() : value.dump());
}

int run(int argc, char** argv) {
  // Repetitions of one benchmark are spread over the whole run, unless the caller says otherwise: taken one
  // after the other they would share what the machine was up to at that moment, and look steadier than they
  // are.
  std::vector<char*> arguments(argv, argv + argc);
  std::string interleaved = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleaved.data());
  argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  argv = arguments.data();
  benchmark::Initialize(&argc, argv);  // takes its own flags away
  CLI::App app{
      "Microbenchmarks of products, attention, memory, collectives, their overlap and the executor. Flags of "
      "Google "
      "Benchmark are taken too."};
  Options options;
  std::string backend = "cpu";
  std::vector<std::string> models{"hidden-512"}, slow;
  app.add_option("--backend", backend, "The devices: cpu (ranks are threads)")->capture_default_str();
  app.add_option("--models", models, "Whose shapes: files, or names in lib/model/configs")
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Tokens of a microbatch")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--tp", options.tp, "Tensor-parallel sizes of the shapes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--ranks", options.ranks, "Sizes of the groups that communicate")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "Samples of every benchmark")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "Ten samples, and fewer sizes");
  app.add_option("--slow", slow,
                 "FAMILY=FACTOR: does the family's work so many times as often, to test comparisons");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.quick) options.repetitions = std::min(options.repetitions, 10);
  for (const std::string& word : slow) {
    const size_t equals = word.find('=');
    char* end = nullptr;
    const double factor = equals == std::string::npos ? 0 : std::strtod(word.c_str() + equals + 1, &end);
    if (factor < 1 || factor > 100 || *end != 0)
      throw stp::InputError("", "--slow", "\"" + word + "\" is no family and factor", "write gemm=1.1, say");
    options.slow[word.substr(0, equals)] = factor;
  }
  options.machine = find_machine(backend);
  for (const std::string& model : models)
    options.models.push_back(
        stp::read_model(stp::find_data_file(model, "lib/model/configs", "", "--models")));
  add_context(options);

  Suite suite(options);
  add_gemm(suite);
  add_attention(suite);
  add_memory(suite);
  add_collective(suite);
  add_overlap(suite);
  add_executor(suite);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const stp::InputError& error) {
    std::fprintf(stderr, "microbench: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "microbench: %s\n", error.what());
    return 1;
  }
}
