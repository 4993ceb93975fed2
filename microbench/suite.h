// The common part of all families of benchmarks: options, and registration with Google Benchmark, one row per
// sample.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine.h"
#include "sampling.h"
#include "stp/model/work.h"

namespace benchmark {
class State;
}

namespace stp::microbench {

struct Options {
  MachineSpec machine;
  std::vector<ModelConfig> models;
  int tokens = 512;  // of one microbatch, which is one sequence
  std::vector<int> tp = {1, 2, 4};
  std::vector<int> ranks = {2, 4};  // of groups
  bool quick = false;
  int repetitions = 20;  // unless a filter of Google Benchmark leaves some out, for the progress
};

using Counters = std::map<std::string, double>;

/// One benchmark with its tensors.
struct Fixture {
  /// Seconds per call, over `calls` consecutive calls.
  std::function<double(int calls)> sample;
  /// Counters for the last sample, which took `seconds`.
  std::function<Counters(double seconds)> counters = [](double /*seconds*/) { return Counters{}; };
  bool cold = false;  // `sample` flushes the caches before each call: no call warms up for it
};

struct Benchmark {
  std::string name;  // family first: "gemm/…"
  Arrangement on;
  double bytes = 0;  // approximate bytes of all its tensors
  std::function<Fixture(BenchEnv& env)> prepare;
  std::string skip;   // why it cannot run here; "": it can
  std::string label;  // text of the row besides its counters
};

/// Registers benchmarks with Google Benchmark in the run's first process: manual time, one sample and one row
/// per repetition, and aggregates with the interval of the median. A benchmark that does not fit the machine
/// is a row with the reason ("skipped: …").
class Suite {
 public:
  explicit Suite(Options options) : options_(std::move(options)) {}
  void add(Benchmark benchmark);
  // With several processes (MachineSpec::processes) the first process runs the benchmarks, and the others
  // take each sample with it. Its decisions, such as calls per sample, hold for all.
  /// Sets up the ranks. All processes call it after all benchmarks are added.
  void begin();
  /// Follows the first process until it calls end(). The other processes call it.
  void follow();
  void end() const;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  struct Current {
    std::string name;
    Arrangement on;
    Fixture fixture;
  };
  void run(const Benchmark& benchmark, ::benchmark::State& state);
  // An environment, and the sampler that keeps its fastest probe.
  struct Place {
    std::unique_ptr<BenchEnv> env;
    std::unique_ptr<SteadySampler> sampler;
  };
  Place& place(const Arrangement& on);
  /// Prepares a benchmark. Returns false if it was prepared already.
  bool prepare(const Benchmark& benchmark);
  /// Prints progress on standard error, every few seconds, if that is a terminal.
  void show_progress();
  double together(const std::string& name, int calls, const std::function<double()>& own) const;

  Options options_;
  std::deque<Benchmark> benchmarks_;  // a deque keeps their addresses
  std::map<Arrangement, Place> places_;
  std::map<std::string, SampleSize> sample_sizes_;  // by benchmark
  std::optional<Current> current_;                  // the one prepared
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now(), shown_ = begun_;
  size_t samples_ = 0;
};

/// Work on the compute streams of all ranks. `cold`: flush the caches before every call.
Fixture compute_work(BenchEnv& env, const BenchEnv::Work& work,
                     const std::function<Counters(double seconds)>& counters, bool cold = false);

// A model's linear layers, with the GEMMs that lib/stp/model declares (gemm.cc).
struct Linear {
  std::string name;
  Gemm forward;  // of one tensor-parallel rank
};
/// The linear layers of one layer and the head. Throws InputError if tp does not divide the model.
std::vector<Linear> linears(const ModelConfig& model, int tokens, int tp);

/// If tp does not divide the model, adds a row that says so and returns true.
bool skip_unless_sharded(Suite& suite, const std::string& family, const ModelConfig& model, int tp);

/// Bytes of a GEMM's operands on `ranks` ranks.
double gemm_bytes(const Gemm& gemm, int ranks, DType type);
/// Gives the GEMM to every rank's compute stream, with its own operands for each rank.
BenchEnv::Work gemm_work(BenchEnv& env, const Gemm& gemm);

// The families.
void add_gemm(Suite& suite);
void add_attention(Suite& suite);
void add_memory(Suite& suite);
void add_collective(Suite& suite);
void add_overlap(Suite& suite);
void add_executor(Suite& suite);

}  // namespace stp::microbench
