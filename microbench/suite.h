// What the families of benchmarks share: options, and how a piece of work becomes rows of Google Benchmark,
// one a sample.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "sampling.h"
#include "stp/model/config.h"

namespace benchmark {
class State;
}

namespace stp::microbench {

struct Options {
  MachineKind machine;
  std::vector<ModelConfig> models;
  int tokens = 512;  // of one microbatch, and the sequence's length
  std::vector<int> tp = {1, 2, 4};
  std::vector<int> ranks = {2, 4};  // of groups
  bool quick = false;
  std::map<std::string, double> slow;  // by family: for tests of comparisons, so many times as many calls
};

/// One benchmark, prepared: tensors made.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// Seconds per call, over `calls` calls one after the other.
  virtual double sample(int calls) = 0;
  /// What stands beside the time `seconds` of the sample just taken.
  [[nodiscard]] virtual std::map<std::string, double> counters(double seconds) const = 0;
};

struct Benchmark {
  std::string name;  // family first: "gemm/…"
  Arrangement on;
  double bytes = 0;  // about what all its tensors take
  std::function<std::unique_ptr<Prepared>(Machine& machine)> prepare;
  std::string skip;   // why it cannot run here; "": it can
  std::string label;  // the row's, beside its counters
};

/// Registers benchmarks with Google Benchmark, where this process is the run's first: manual time, every
/// repetition a sample of its own and a row of its own; aggregates with the interval of the median. A
/// benchmark that does not fit the machine is a row that says why ("skipped: …").
class Suite {
 public:
  explicit Suite(Options options) : options_(std::move(options)) {}
  void add(Benchmark benchmark);
  // Of a run of several processes (MachineKind::processes) the first runs the benchmarks, and has the others
  // do each sample with it: so what it decides on the way, as how many calls a sample has, it decides for
  // all.
  /// Of all processes, once all benchmarks are added: sets up the machine.
  void begin();
  /// Of the others: does what the first has them do, until it calls end().
  void follow();
  void end() const;
  /// InputError unless all families that are to be slow are there.
  void check_slow() const;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  struct Current;
  void run(const Benchmark& benchmark, ::benchmark::State& state);
  static void run_registered(::benchmark::State& state, Suite* suite, const Benchmark* benchmark);
  // So many ranks, and the sampler that knows how fast they were at best.
  struct Place {
    std::unique_ptr<Machine> machine;
    std::unique_ptr<SteadySampler> sampler;
  };
  Place& place(const Arrangement& on);
  /// True if it was not prepared before.
  bool prepare(const Benchmark& benchmark);
  double together(const std::string& name, int calls, const std::function<double()>& own) const;

  Options options_;
  std::deque<Benchmark> benchmarks_;  // which stay where they are
  std::map<Arrangement, Place> places_;
  std::map<std::string, Pace> paces_;  // by benchmark
  std::shared_ptr<Current> current_;   // the one prepared
};

/// Work of one kind on the compute streams of so many ranks. Cold: the caches are flushed before every call.
class ComputeWork : public Prepared {
 public:
  using Counters = std::function<std::map<std::string, double>(double seconds)>;
  ComputeWork(Machine& machine, Machine::Work work, Counters counters, bool cold = false)
      : machine_(machine), work_(std::move(work)), counters_(std::move(counters)), cold_(cold) {}
  double sample(int calls) override;
  [[nodiscard]] std::map<std::string, double> counters(double seconds) const override {
    return counters_(seconds);
  }

 private:
  Machine& machine_;
  Machine::Work work_;
  Counters counters_;
  bool cold_;
};

// The families.
void add_gemm(Suite& suite);
void add_attention(Suite& suite);
void add_memory(Suite& suite);
void add_collective(Suite& suite);
void add_overlap(Suite& suite);
void add_executor(Suite& suite);

}  // namespace stp::microbench
