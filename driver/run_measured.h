// One experiment on devices: program, training steps, result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "injected_fault.h"
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
};

/// Checkpoints of a run (lib/stp/checkpoint).
struct CheckpointOptions {
  std::string save, resume;  // folders; "": none
  int every = 0;             // steps between two; 0: only after the last step
};

/// Options of a run. The experiment gives the world's size.
struct DeviceOptions : BackendOptions {
  std::string backend = {};
  bool time_kernels = false;  // time them in further steps
  std::optional<ReplayChoice> replay = {};
  CheckpointOptions checkpoints = {};
  Processes* processes = nullptr;  // of the run; null: this process has all ranks
  std::optional<Fault> fault = {};

  [[nodiscard]] bool emulates() const;  // kernels only take time
};

/// The bytes of `run.text` of the scenario `file`, which the InputError names.
std::string read_text(const Experiment::Run& run, const std::string& file);

struct MeasuredRun {
  Program program;
  // The last step, on the ranks that represent their tensor- and data-parallel groups; in a replay, only on
  // its rank.
  Timeline timeline;
  Result result;
  std::vector<RankUse> uses;  // by world rank that has run
};

/// Trains `experiment` (which has a `run`) with one of its schedules, and calls `stepped` after every step.
/// Throws InputError for invalid input, and std::runtime_error that names the rank if the run fails. With a
/// profile, the result has its prediction. With `options.replay` only one rank runs. With `options.processes`
/// all processes must call this; process 0 gets all measurements, the others nothing.
std::optional<MeasuredRun> run_measured(const ScheduleChoice& choice, const Experiment& experiment,
                                        const std::string& file, const DeviceOptions& options,
                                        const HardwareProfile* profile, const std::function<void()>& stepped);

/// Whether a run of `type` has good parity. float64: 10⁻¹⁰. float32: 10⁻⁵. bf16: the loss within 2⁻⁸, the
/// rounding of one number; the gradient's error at most twice one rank's error, and below 0.5, because a
/// missing tensor has error 1.
bool parity_holds(const Parity& parity, const std::string& type);

}  // namespace stp
