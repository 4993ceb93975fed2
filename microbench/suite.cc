#include "suite.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "stp/report/statistics.h"

namespace stp::microbench {
namespace {

// Of all repetitions of a benchmark, as aggregates.
// Too few for an interval of 95 %: all that was seen; such rows are noisy.
double lower_end(const std::vector<double>& times) {
  const auto interval = median_interval(times);
  return interval ? interval->low : *std::min_element(times.begin(), times.end());
}
double upper_end(const std::vector<double>& times) {
  const auto interval = median_interval(times);
  return interval ? interval->high : *std::max_element(times.begin(), times.end());
}
double noisy(const std::vector<double>& times) { return half_width(times) > kNoisy ? 1 : 0; }
double percentile(std::vector<double> times, double share) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(std::lround(share * static_cast<double>(times.size() - 1)))];
}

}  // namespace

struct Suite::Current {
  std::string name;
  int ranks;
  std::unique_ptr<Prepared> prepared;
};

double ComputeWork::sample(int calls) {
  if (cold_) {
    double seconds = 0;
    for (int call = 0; call < calls; ++call) {
      machine_.flush_caches();
      seconds += machine_.time(work_, {}).compute;
    }
    return seconds / calls;
  }
  // Slowed on purpose: of ten calls an eleventh.
  const auto extra = static_cast<int>(std::lround((slow_ - 1) * calls));
  return machine_
             .time(
                 [&](int rank) {
                   for (int call = 0; call < calls + extra; ++call) work_(rank);
                 },
                 {})
             .compute /
         calls;
}

Suite::Place& Suite::place(int ranks) {
  Place& place = places_[ranks];
  if (!place.machine) {
    place.machine = std::make_unique<Machine>(options_.machine, ranks);
    place.sampler =
        std::make_unique<SteadySampler>([machine = place.machine.get()] { return machine->probe(); });
  }
  return place;
}

void Suite::run(const Benchmark& benchmark, ::benchmark::State& state) {
  if (!benchmark.skip.empty()) return state.SkipWithError(("skipped: " + benchmark.skip).c_str());
  if (benchmark.bytes > 0.8 * options_.machine.memory_bytes)
    return state.SkipWithError(("skipped: needs " + std::to_string(std::lround(benchmark.bytes / 1e6)) +
                                " MB of " + std::to_string(std::lround(options_.machine.memory_bytes / 1e6)))
                                   .c_str());
  Place& on = place(benchmark.ranks);
  if (!current_ || current_->name != benchmark.name) {
    if (current_) {
      Machine& before = *place(current_->ranks).machine;
      current_.reset();
      before.clear();
    }
    current_ =
        std::make_shared<Current>(Current{benchmark.name, benchmark.ranks, benchmark.prepare(*on.machine)});
    const double first = current_->prepared->sample(1);  // pages, tables, plans
    int& calls = calls_[benchmark.name];
    if (calls == 0) {
      calls = calls_per_sample(std::min(first, current_->prepared->sample(1)));
      // To be slowed by a tenth, work must be done ten times.
      if (options_.slow.contains(benchmark.name.substr(0, benchmark.name.find('/'))))
        calls = std::max(calls, 20);
    }
  }
  Prepared& prepared = *current_->prepared;
  const int calls = calls_.at(benchmark.name);
  SteadySampler::Taken taken{};
  for ([[maybe_unused]] const auto _ : state) {
    taken = on.sampler->take([&] { return prepared.sample(calls); });
    state.SetIterationTime(taken.seconds);
  }
  for (const auto& [name, value] : prepared.counters(taken.seconds)) state.counters[name] = value;
  state.counters["ranks"] = benchmark.ranks;
  state.counters["calls"] = calls;
  state.counters["tries"] = taken.tries;
  state.counters["probe_slowdown"] = taken.slowdown;
  // No counter is 0 throughout: Google Benchmark would print its coefficient of variation as NaN.
  const int processors = options_.machine.processors;
  if (processors > 0 && benchmark.ranks > processors) state.counters["oversubscribed"] = 1;
}

void Suite::run_registered(::benchmark::State& state, Suite* suite, const Benchmark* benchmark) {
  suite->run(*benchmark, state);
}

void Suite::add(Benchmark benchmark) {
  benchmarks_.push_back(std::move(benchmark));
  const Benchmark* added = &benchmarks_.back();
  const bool skipped = !added->skip.empty();
  ::benchmark::RegisterBenchmark(added->name.c_str(), run_registered, this, added)
      ->UseManualTime()
      ->Iterations(1)
      ->Repetitions(skipped ? 1 : options_.repetitions)
      ->DisplayAggregatesOnly(true)
      ->Unit(::benchmark::kMicrosecond)
      ->ComputeStatistics("low95", lower_end)
      ->ComputeStatistics("high95", upper_end)
      ->ComputeStatistics("p5", [](const std::vector<double>& times) { return percentile(times, 0.05); })
      ->ComputeStatistics("p95", [](const std::vector<double>& times) { return percentile(times, 0.95); })
      ->ComputeStatistics("noisy", noisy, ::benchmark::kPercentage);
}

}  // namespace stp::microbench
