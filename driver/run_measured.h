// One experiment on devices: program, training steps, result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replay.h"
#include "scenario.h"
#include "stp/device/backend.h"
#include "stp/processes/processes.h"
#include "stp/report/record.h"
#include "stp/runtime/trainer.h"
#include "stp/simulate/simulate.h"

namespace stp {

struct DeviceOptions {
  std::string backend;
  double deadline_s = 10;
  size_t memory_limit = 0;        // bytes a rank; 0: none
  bool graphs = false;            // as BackendOptions
  std::vector<std::string> nccl;  // as BackendOptions
  int gemm_multiprocessors = 0;   // as BackendOptions
  double hold_compute_us = 0;     // as BackendOptions
  bool time_kernels = false;      // in further steps
  std::optional<ReplayChoice> replay;
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

}  // namespace stp
