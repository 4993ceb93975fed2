#include "suite.h"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "stp/base/error.h"
#include "stp/report/statistics.h"

namespace stp::microbench {
namespace {

// Aggregates over all repetitions of a benchmark. With too few for a 95 % interval, it is the whole range;
// such rows are noisy.
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

std::string exact(double value) { return shown("%.17g", value); }

}  // namespace

Fixture compute_work(BenchEnv& env, const BenchEnv::Work& work,
                     const std::function<Counters(double seconds)>& counters, bool cold) {
  const auto sample = [&env, work, cold](int calls) {
    double seconds = 0;
    for (int call = 0; cold && call < calls; ++call) {
      env.flush_caches();
      seconds += env.time(work, {}, 1).compute;
    }
    const BenchEnv::Work repeated = [&](int rank) {
      for (int call = 0; call < calls; ++call) work(rank);
    };
    return (cold ? seconds : env.time(repeated, {}, calls).compute) / calls;
  };
  return {sample, counters, cold};
}

Suite::Place& Suite::place(const Arrangement& on) {
  Place& place = places_[on];
  if (!place.env) {
    place.env = std::make_unique<BenchEnv>(options_.machine, on);
    place.sampler = std::make_unique<SteadySampler>(
        [this, env = place.env.get()] { return together("", 0, [env] { return env->probe(); }); });
  }
  return place;
}

// Runs the work in this process, the first, and in all others. Returns the seconds of the slowest. The name
// of the probe is "".
double Suite::together(const std::string& name, int calls, const std::function<double()>& own) const {
  if (!options_.machine.has_others()) return own();
  Processes& processes = *options_.machine.processes;
  processes.broadcast(std::to_string(calls) + " " + name);
  double most = 0;
  for (const std::string& seconds : processes.gather(exact(own()))) most = std::max(most, std::stod(seconds));
  return most;
}

void Suite::begin() {
  if (options_.machine.has_others()) place({.ranks = options_.machine.processes->count()});
}

void Suite::follow() {
  for (;;) {
    const std::string what = options_.machine.processes->broadcast("");
    if (what.empty()) return;
    const int calls = std::stoi(what);
    const std::string name = what.substr(what.find(' ') + 1);
    double seconds = 0;
    if (name.empty()) {
      seconds = places_.begin()->second.env->probe();
    } else {
      prepare(*std::find_if(benchmarks_.begin(), benchmarks_.end(),
                            [&](const Benchmark& each) { return each.name == name; }));
      seconds = current_->fixture.sample(calls);
    }
    options_.machine.processes->gather(exact(seconds));
  }
}

void Suite::end() const {
  if (options_.machine.has_others()) options_.machine.processes->broadcast("");
}

bool Suite::prepare(const Benchmark& benchmark) {
  if (current_ && current_->name == benchmark.name) return false;
  if (current_) {
    BenchEnv& before = *place(current_->on).env;
    current_.reset();
    before.clear();
  }
  BenchEnv& env = *place(benchmark.on).env;
  current_ = {benchmark.name, benchmark.on, benchmark.prepare(env)};
  return true;
}

void Suite::show_progress() {
  ++samples_;
  if (isatty(STDERR_FILENO) != 1) return;
  constexpr std::chrono::seconds kEvery(5);
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < kEvery) return;
  shown_ = now;
  std::fprintf(stderr, "microbench: %zu of at most %zu samples, %.0f s\n", samples_,
               benchmarks_.size() * options_.repetitions,
               std::chrono::duration<double>(now - begun_).count());
}

void Suite::run(const Benchmark& benchmark, ::benchmark::State& state) {
  show_progress();
  if (!benchmark.skip.empty()) return state.SkipWithError(("skipped: " + benchmark.skip).c_str());
  if (benchmark.bytes > 0.8 * options_.machine.memory_bytes)
    return state.SkipWithError(("skipped: needs " + std::to_string(std::lround(benchmark.bytes / 1e6)) +
                                " MB of " + std::to_string(std::lround(options_.machine.memory_bytes / 1e6)))
                                   .c_str());
  Place& on = place(benchmark.on);
  const auto sample = [&](int calls) {
    return together(benchmark.name, calls, [&] { return current_->fixture.sample(calls); });
  };
  if (prepare(benchmark)) {
    if (!sample_sizes_.contains(benchmark.name))
      sample_sizes_.emplace(benchmark.name, settle_sample_size(sample));
    else if (!current_->fixture.cold)
      sample(1);  // warms up pages, tables, plans
  }
  const auto [calls, warm_up] = sample_sizes_.at(benchmark.name);
  SteadySampler::Taken taken{};
  for ([[maybe_unused]] const auto _ : state) {
    taken = on.sampler->take([&, calls = calls, warm_up = warm_up] {
      if (warm_up && !current_->fixture.cold) sample(1);
      return sample(calls);
    });
    state.SetIterationTime(taken.seconds);
  }
  if (!benchmark.label.empty()) state.SetLabel(benchmark.label);
  for (const auto& [name, value] : current_->fixture.counters(taken.seconds)) state.counters[name] = value;
  state.counters["ranks"] = benchmark.on.ranks;
  state.counters["calls"] = calls;
  state.counters["tries"] = taken.tries;
  state.counters["probe_slowdown"] = taken.slowdown;
  // No counter is 0 throughout: Google Benchmark would print its coefficient of variation as NaN.
  const int processors = options_.machine.processors;
  if (processors > 0 && on.env->ranks() > processors) state.counters["oversubscribed"] = 1;
}

void Suite::add(Benchmark benchmark) {
  const MachineSpec& machine = options_.machine;
  if (benchmark.skip.empty() && benchmark.on.ranks > 1 && machine.processors == 0 && !machine.peers &&
      !machine.has_others())
    benchmark.skip =
        "ranks that exchange data need a device each, and there is only one; --peers PROFILE emulates "
        "that machine's links";
  benchmarks_.push_back(std::move(benchmark));
  if (machine.has_others() && !machine.processes->is_root()) return;
  const Benchmark* added = &benchmarks_.back();
  // Flags set repetitions, so that names do not contain their number.
  auto* registered =
      ::benchmark::RegisterBenchmark(added->name.c_str(),
                                     [this, added](::benchmark::State& state) { run(*added, state); })
          ->UseManualTime()
          ->Iterations(1)
          ->DisplayAggregatesOnly(true)
          ->Unit(::benchmark::kMicrosecond)
          ->ComputeStatistics("low95", lower_end)
          ->ComputeStatistics("high95", upper_end)
          ->ComputeStatistics("p5", [](const std::vector<double>& times) { return percentile(times, 0.05); })
          ->ComputeStatistics("p95", [](const std::vector<double>& times) { return percentile(times, 0.95); })
          ->ComputeStatistics("noisy", noisy, ::benchmark::kPercentage);
  if (!added->skip.empty()) registered->Repetitions(1);
}

}  // namespace stp::microbench
