// executor: the overhead of an op. `issue`: the host's time to give a kernel to a stream. `launch`: the
// device's time of an almost empty kernel, one after the other on a busy stream. `event`: a record and a wait
// between two streams, back and forth.
#include <chrono>

#include "suite.h"

namespace stp::microbench {
namespace {

class Issue : public Fixture {
 public:
  explicit Issue(BenchEnv& env) : env_(env), tensor_(env.make(0, DType::f32, 1, 1)) {}
  double sample(int calls) override {
    env_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call)
      env_.kernels(0).issue(env_.compute(0), kernel::Fill{.tensor = tensor_, .value = 0});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    env_.synchronize();
    return seconds / calls;
  }
  [[nodiscard]] Counters counters(double /*seconds*/) const override { return {}; }

 private:
  BenchEnv& env_;
  Tensor tensor_;
};

class EventRoundTrip : public Fixture {
 public:
  explicit EventRoundTrip(BenchEnv& env) : env_(env) {}
  double sample(int calls) override {
    Stream &there = env_.communication(0), &here = env_.compute(0);
    const EventRef start = here.record();
    for (int call = 0; call < calls; ++call) {
      there.wait(here.record());
      here.wait(there.record());
    }
    const EventRef end = here.record();
    env_.synchronize();
    return (end->seconds() - start->seconds()) / calls;
  }
  [[nodiscard]] Counters counters(double /*seconds*/) const override { return {}; }

 private:
  BenchEnv& env_;
};

}  // namespace

void add_executor(Suite& suite) {
  suite.add(
      {.name = "executor/issue", .prepare = [](BenchEnv& env) { return std::make_unique<Issue>(env); }});
  suite.add({.name = "executor/launch", .prepare = [](BenchEnv& env) {
               const Tensor tensor = env.make(0, DType::f32, 1, 1);
               return std::make_unique<ComputeWork>(
                   env,
                   [=, &env](int) {
                     env.kernels(0).issue(env.compute(0), kernel::Fill{.tensor = tensor, .value = 0});
                   },
                   [](double) { return Counters{}; });
             }});
  suite.add({.name = "executor/event_round_trip",
             .prepare = [](BenchEnv& env) { return std::make_unique<EventRoundTrip>(env); }});
}

}  // namespace stp::microbench
