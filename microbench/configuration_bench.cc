// The time of a configuration of the paper outside the simulation: schedule, Program, costs, memory and
// metrics, over every configuration and schedule of a scenario. `beyond_ms` is that time per configuration;
// the rest is the engine's.
#include <benchmark/benchmark.h>

#include <chrono>

#include "run_simulated.h"
#include "scenario.h"
#include "stp/base/allocator.h"
#include "stp/simulate/simulate.h"

namespace {

using namespace stp;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void configurations(benchmark::State& state, const char* name) {
  const Scenario scenario = read_scenario(name);
  double whole = 0, engine = 0;
  int64_t runs = 0, ops = 0;
  for ([[maybe_unused]] const auto _ : state) {
    for (const Experiment& experiment : scenario.experiments) {
      for (const ScheduleChoice& choice : experiment.schedules) {
        auto start = Clock::now();
        const SimulatedRun run = run_simulated(choice, experiment, scenario.file);
        whole += since(start);
        state.PauseTiming();
        std::vector<double> seconds(run.timeline.end);
        for (size_t op = 0; op < seconds.size(); ++op) seconds[op] -= run.timeline.start[op];
        start = Clock::now();
        benchmark::DoNotOptimize(simulate(run.program, seconds, {0.83, 0.9}));
        engine += since(start);
        ++runs;
        ops += static_cast<int64_t>(run.program.ops.size());
        state.ResumeTiming();
      }
    }
  }
  const auto count = static_cast<double>(runs);
  state.counters["configurations"] = count / static_cast<double>(state.iterations());
  state.counters["program_ops"] = static_cast<double>(ops) / count;
  state.counters["whole_ms"] = 1e3 * whole / count;
  state.counters["engine_ms"] = 1e3 * engine / count;
  state.counters["beyond_ms"] = 1e3 * (whole - engine) / count;
}

BENCHMARK_CAPTURE(configurations, llm_a800, "llm-a800")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(configurations, llm_h20, "llm-h20")->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  stp::keep_freed_memory();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
