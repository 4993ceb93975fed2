// executor: the overhead of an op. `issue`: the host's time to give a kernel to a stream. `launch`: the
// device's time of an almost empty kernel, one after the other on a busy stream. `event`: a record and a wait
// between two streams, back and forth.
#include <chrono>

#include "suite.h"

namespace stp::microbench {
namespace {

Fixture issue(BenchEnv& env) {
  const Tensor tensor = env.make(0, DType::f32, 1, 1);
  return {[=, &env](int calls) {
    env.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call)
      env.kernels(0).issue(env.compute(0), kernel::Fill{.tensor = tensor, .value = 0});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    env.synchronize();
    return seconds / calls;
  }};
}

Fixture launch(BenchEnv& env) {
  const Tensor tensor = env.make(0, DType::f32, 1, 1);
  const BenchEnv::Work fill = [=, &env](int) {
    env.kernels(0).issue(env.compute(0), kernel::Fill{.tensor = tensor, .value = 0});
  };
  return compute_work(env, fill, [](double) { return Counters{}; });
}

Fixture event_round_trip(BenchEnv& env) {
  return {[&env](int calls) {
    Stream &there = env.communication(0), &here = env.compute(0);
    return env.time_calls(calls, [&] {
      there.wait(here.record());
      here.wait(there.record());
    });
  }};
}

}  // namespace

void add_executor(Suite& suite) {
  suite.add({.name = "executor/issue", .prepare = issue});
  suite.add({.name = "executor/launch", .prepare = launch});
  suite.add({.name = "executor/event_round_trip", .prepare = event_round_trip});
}

}  // namespace stp::microbench
