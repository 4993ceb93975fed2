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

/// The largest errors of a run in float32, and in float64.
double parity_limit(const std::string& type);

/// Whether a run of `type` equals one rank: its errors are within parity_limit(); in bf16, the loss's within
/// 2⁻⁸, the rounding of one number. In bf16, and where one rank's gradient in float32 is itself beyond the
/// limit, the gradient's error may be twice one rank's. `too_inexact`: it is, but not below 0.5, and a
/// missing tensor has error 1.
enum class Equality { equal, differs, too_inexact };
Equality equality_of(const Parity& parity, const std::string& type);

}  // namespace stp
