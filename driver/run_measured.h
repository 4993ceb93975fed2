// One experiment on devices: program, training steps, result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "scenario.h"
#include "stp/cluster/profile.h"
#include "stp/device/backend.h"
#include "stp/processes/processes.h"
#include "stp/report/record.h"
#include "stp/runtime/trainer.h"
#include "stp/simulate/simulate.h"

namespace stp {

/// A replay: one rank of the world, with its real kernels, over emulated links to its peers.
struct ReplayChoice {
  int rank;
  HardwareProfile profile;  // of the links
  double late_s = 0;        // as Replay
};

/// The world's size follows from the experiment.
struct DeviceOptions : BackendOptions {
  std::string backend = {};
  bool time_kernels = false;  // in further steps
  std::optional<ReplayChoice> replay = {};
  Processes* processes = nullptr;  // of the run; none: this one has all ranks
};

struct MeasuredRun {
  Program program;
  // Of the last step, of the ranks that represent their tensor and data-parallel groups; in a replay, of its
  // rank only.
  Timeline timeline;
  Result result;
  std::vector<RankUse> uses;  // by world rank that ran
};

/// Trains `experiment` (which has a `run`) with one of its schedules; `stepped` is called after every step.
/// InputError for invalid input; std::runtime_error that names the rank if the run fails. With a profile, the
/// result has its prediction. With `options.replay` only one rank runs. With `options.processes` all of them
/// must call this; process 0 gets the measurements of all, the others nothing.
std::optional<MeasuredRun> run_measured(const ScheduleChoice& choice, const Experiment& experiment,
                                        const std::string& file, const DeviceOptions& options,
                                        const HardwareProfile* profile, const std::function<void()>& stepped);

/// Whether the parity of a run of that type is good. float64: 10⁻¹⁰. float32: 10⁻⁵. bf16: the loss within
/// 2⁻⁸, the rounding of one number; the gradient's error at most twice that of one rank, and below 0.5, since
/// a missing tensor has an error of 1.
bool parity_holds(const Parity& parity, const std::string& type);

}  // namespace stp
