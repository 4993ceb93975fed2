// Trains a model by a Program on the ranks of a backend that this process drives.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"
#include "stp/program/program.h"
#include "stp/runtime/training.h"

namespace stp {

struct StepResult {
  double loss = 0;  // mean over all tokens of the step: the share of this process's ranks
  /// From the step's start to the last op's end, over all ranks of this process. The start is that of the
  /// first op; in a run of several processes, whose clocks cannot be compared, the moment when all ranks of
  /// the world had come to the step, which is the same for all of them but for what a small all-reduce needs.
  double step_s = 0;
  /// By op of the Program, relative to the step's start: of each pipeline rank's first rank in this process,
  /// and the transfers that came to those from other processes. Empty where times are not recorded.
  std::vector<OpTime> times;
  std::vector<bool> known;  // by op: whether it has a time
};

/// Peak bytes of one world rank by kind, and what it sent, since the trainer began.
struct RankUse {
  int world_rank = 0;
  std::map<std::string, size_t> peak_bytes;  // by to_string(MemoryKind)
  size_t peak_total = 0;
  Traffic traffic;                        // Executor::traffic()
  size_t scratch_bytes = 0;               // MemoryTracker::scratch()
  std::optional<double> share_in_graphs;  // Device::share_in_graphs()
};

class Trainer {
 public:
  /// `program` must hold an optimizer op per rank, and gradient reductions if the grid has dp > 1. InputError
  /// if training.grid does not fit the program or the backend; std::runtime_error if the run fails.
  Trainer(Backend& backend, Program program, const Training& training);
  ~Trainer();

  /// One step over microbatches · microbatch_size · dp samples: replica after replica, microbatch after
  /// microbatch. Throws std::runtime_error that names rank, op and microbatch if the run fails.
  StepResult step(const std::vector<TokenSample>& samples);

  /// The whole matrices, by parameter_name(): gradients of the latest step (before clipping), weights as the
  /// passes read them, or as the optimizer keeps them: the same but in bf16. In a run of several processes
  /// all of them call this; process 0 gets the whole, the others nothing.
  [[nodiscard]] std::map<std::string, std::vector<double>> gradients();
  [[nodiscard]] std::map<std::string, std::vector<double>> weights();
  [[nodiscard]] std::map<std::string, std::vector<double>> masters();
  /// Of every rank of this process.
  [[nodiscard]] std::vector<RankUse> use();
  /// What calls over emulated links (lib/stp/emulation) took since this was last asked, by kind of group:
  /// "tp", "dp", "pp" and "model", of those with several members. Of all ranks of this process together;
  /// empty where no link is emulated.
  std::map<std::string, EmulatedUse> take_emulated_use();
  /// Device::time_kernels() of all ranks of this process, between steps.
  bool time_kernels(bool on);
  /// Device::take_kernel_seconds(), of the rank that has most.
  double take_kernel_seconds();
  [[nodiscard]] const Program& program() const;

 private:
  struct State;
  void note_times(StepResult& result) const;
  std::unique_ptr<State> state_;
};

}  // namespace stp
