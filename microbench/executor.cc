// executor: what an op costs beyond its work. `issue` is the host's time to give a kernel to a stream;
// `launch` the device's time of a kernel that does next to nothing, one after the other on a busy stream;
// `event` a record and a wait between two streams, there and back.
#include <chrono>

#include "suite.h"

namespace stp::microbench {
namespace {

class Issue : public Prepared {
 public:
  explicit Issue(Machine& machine) : machine_(machine), tensor_(machine.make(0, DType::f32, 1, 1)) {}
  double sample(int calls) override {
    machine_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) machine_.kernels(0).fill(machine_.compute(0), tensor_, 0);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    machine_.synchronize();
    return seconds / calls;
  }
  [[nodiscard]] std::map<std::string, double> counters(double /*seconds*/) const override { return {}; }

 private:
  Machine& machine_;
  Tensor tensor_;
};

class EventRoundTrip : public Prepared {
 public:
  explicit EventRoundTrip(Machine& machine) : machine_(machine) {}
  double sample(int calls) override {
    Stream &there = machine_.communication(0), &here = machine_.compute(0);
    const EventRef start = here.record();
    for (int call = 0; call < calls; ++call) {
      there.wait(here.record());
      here.wait(there.record());
    }
    const EventRef end = here.record();
    machine_.synchronize();
    return (end->seconds() - start->seconds()) / calls;
  }
  [[nodiscard]] std::map<std::string, double> counters(double /*seconds*/) const override { return {}; }

 private:
  Machine& machine_;
};

}  // namespace

void add_executor(Suite& suite) {
  suite.add({.name = "executor/issue",
             .prepare = [](Machine& machine) { return std::make_unique<Issue>(machine); }});
  suite.add({.name = "executor/launch", .prepare = [](Machine& machine) {
               const Tensor tensor = machine.make(0, DType::f32, 1, 1);
               return std::make_unique<ComputeWork>(
                   machine, [=, &machine](int) { machine.kernels(0).fill(machine.compute(0), tensor, 0); },
                   [](double) -> std::map<std::string, double> { return {}; });
             }});
  suite.add({.name = "executor/event_round_trip",
             .prepare = [](Machine& machine) { return std::make_unique<EventRoundTrip>(machine); }});
}

}  // namespace stp::microbench
