// Trains a model with a Program, on the ranks of a backend that this process drives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"
#include "stp/program/program.h"
#include "stp/runtime/matrix_shard.h"
#include "stp/runtime/training.h"

namespace stp {

struct StepResult {
  double loss = 0;  // mean over all tokens of the step, only the summands of this process's ranks
  /// From the step's start to the end of this process's last op. A single process starts with its first op.
  /// With several processes, whose clocks differ, the start is when all ranks of the world have reached the
  /// step; processes see it at the same time, up to the time of a small all-reduce.
  double step_s = 0;
  /// By op of the Program, relative to the step's start: for each pipeline rank's first rank in this process,
  /// and for transfers to it from other processes. Empty if times are not recorded.
  std::vector<OpTime> times;
  std::vector<bool> known;  // by op: the op has a time
};

/// Peak bytes of one world rank by kind, and its traffic, since the trainer was made.
struct RankUse {
  int world_rank = 0;
  std::map<std::string, size_t> peak_bytes;  // by to_string(MemoryKind)
  size_t peak_total = 0;
  Traffic traffic;                        // Executor::traffic()
  size_t scratch_bytes = 0;               // MemoryTracker::scratch()
  std::optional<double> share_in_graphs;  // Device::share_in_graphs()
};

/// What training changes. `masters` differ from `weights` only in bf16.
enum class Trained { weights, masters, first_moments, second_moments };
/// Sets the values of a block of a matrix.
using ReadShard = std::function<void(MatrixShard& shard)>;

class Trainer {
 public:
  /// `program` must hold an optimizer op per rank, and gradient reductions if its strategy has dp > 1.
  /// InputError if it does not fit the training or the backend; std::runtime_error if the run fails.
  Trainer(Backend& backend, Program program, const Training& training);
  ~Trainer();

  /// One step over microbatches · microbatch_size · dp samples, ordered by replica, then by microbatch.
  /// Throws std::runtime_error that names rank, op and microbatch if the run fails.
  StepResult step(const std::vector<TokenSample>& samples);

  /// With post-validation, checks the latest step, as the next step would. Call it after the last step. If
  /// the step was undone it throws NotFinite, as the next step() would; then training can continue.
  void finish();

  /// Full matrices, by parameter_name(): the latest step's gradients (before clipping), the weights that
  /// passes read, and the optimizer's state. All processes of a run must call these functions; process 0 gets
  /// the matrices, the others get nothing. With ZeRO-1 the optimizer's state overwrites the gradients, so ask
  /// for those first.
  [[nodiscard]] Matrices gradients();
  [[nodiscard]] Matrices trained(Trained which);
  [[nodiscard]] Matrices weights() { return trained(Trained::weights); }
  [[nodiscard]] Matrices masters() { return trained(Trained::masters); }
  /// Before the first step: replaces initial values, of each rank of this process. Weights replace masters,
  /// too.
  void restore(Trained which, const ReadShard& read);
  /// Before the first step: `updates` optimizer steps were made.
  void restore_updates(int updates);
  /// The use of every rank of this process.
  [[nodiscard]] std::vector<RankUse> use();
  /// Calls over emulated links (lib/stp/emulation) since the last call of this function, summed over this
  /// process's ranks, by kind of group: "tp", "cp", "dp", "pp", "model", "vocabulary", "embedding" (a tied
  /// head's) and "pipelines" (two). Groups of one member are left out. Empty without emulated links.
  std::map<std::string, EmulatedUse> take_emulated_use();
  /// Calls Device::time_kernels() for all ranks of this process, between steps.
  bool time_kernels(bool on);
  /// Maximum of Device::take_kernel_seconds() over the ranks.
  double take_kernel_seconds();
  [[nodiscard]] const Program& program() const;
  /// Training::type.
  [[nodiscard]] DType type() const;
  /// For work between steps for which other processes wait.
  [[nodiscard]] RunGuard& guard();

 private:
  struct State;
  void note_times(StepResult& result) const;
  std::unique_ptr<State> state_;
};

}  // namespace stp
