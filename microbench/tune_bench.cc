// The rate of `stp tune`: configurations judged a second, and how many of them are simulated.
#include <benchmark/benchmark.h>

#include "tuner.h"

namespace stp {
namespace {

void tune_70b(benchmark::State& state) {
  TuneOptions options;
  options.model = "llama3-70b";
  options.cluster = "h100";
  options.gpus = static_cast<int>(state.range(0));
  options.global_batch = 1024;
  options.seq = 8192;
  double judged = 0, simulated = 0;
  for ([[maybe_unused]] const auto _ : state) {
    FinishedRows none("");
    const TuneCounts counts = tune(TuneSpace(options), 0.03, 0.06, false, none).counts;
    judged += static_cast<double>(counts.configurations);
    simulated += static_cast<double>(counts.simulated);
  }
  state.counters["judged/s"] = benchmark::Counter(judged, benchmark::Counter::kIsRate);
  state.counters["simulated/s"] = benchmark::Counter(simulated, benchmark::Counter::kIsRate);
}
BENCHMARK(tune_70b)->ArgName("gpus")->Arg(16)->Arg(128)->Arg(1024)->Iterations(1)->UseRealTime()->Unit(
    benchmark::kSecond);

}  // namespace
}  // namespace stp
