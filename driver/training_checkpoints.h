// The checkpoints of one run: the one that it begins with, and those that it writes.
#pragma once

#include <filesystem>
#include <optional>

#include "run_measured.h"
#include "stp/checkpoint/checkpoint.h"

namespace stp {

class TrainingCheckpoints {
 public:
  /// `steps`: of the run. Reads where --resume's tensors lie; InputError as of Checkpoint and OutputFolder.
  TrainingCheckpoints(const CheckpointOptions& options, const Training& training, int steps);

  [[nodiscard]] const std::optional<Checkpoint>& resumed() const { return resumed_; }
  [[nodiscard]] const TrainingProgress& progress() const { return progress_; }
  /// Refuses, before the first step, what no checkpoint can be written to. For the root.
  void check_folders() const;
  /// After each step, which took so many samples: saves if it is time. All processes call it.
  void step_done(Trainer& trainer, int samples, bool root);

 private:
  [[nodiscard]] bool saves_after(int step) const;
  [[nodiscard]] std::filesystem::path folder_after(int updates) const;

  const CheckpointOptions& options_;
  const Training& training_;
  const int steps_;
  int step_ = 0;
  const std::optional<Checkpoint> resumed_;
  TrainingProgress progress_;
};

}  // namespace stp
