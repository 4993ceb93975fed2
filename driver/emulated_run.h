// Simulated scenarios on the backend `emulated`: the real executor, on devices whose kernels take the
// simulator's seconds.
#pragma once

#include <string>
#include <vector>

#include "scenario.h"
#include "stp/program/program.h"

namespace stp {

/// The experiment with a `run`: a tiny model stands in for its own, since no value is computed, and nothing
/// contends. Throws InputError for what the runtime cannot run.
Experiment emulated_experiment(Experiment experiment, const std::string& file);

/// Seconds of the ops of an emulated experiment's Program: those of the simulator. With unit costs the
/// Program's embedding takes no time but keeps its place: its W waits for the all-reduce before it.
std::vector<double> emulated_seconds(const Experiment& experiment, const Program& program);

}  // namespace stp
