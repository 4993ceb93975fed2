// Checkpoints: folders with a model as Hugging Face's transformers reads it (config.json, model.safetensors
// or an index of several), and beside it how training goes on: optimizer.safetensors, whose tensors are named
// "first_moment.", "second_moment." and, of a run in bf16, "master." before the model's own names, and
// training.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stp/runtime/trainer.h"
#include "stp/safetensors/safetensors.h"

namespace stp {

/// How far training is: optimizer steps, and samples of the data that they took.
struct TrainingProgress {
  int updates = 0;
  int64_t samples = 0;
};

/// A checkpoint to go on from. It may be another's, of a model alone: its training begins at the first step.
class Checkpoint {
 public:
  /// Of last_checkpoint_in(folder). Reads what lies where, but no values. Throws InputError that names file
  /// and tensor for what is wrong, missing, or not of `model`, which must outlive this.
  Checkpoint(const std::string& folder, const ModelConfig& model);

  [[nodiscard]] TrainingProgress progress() const { return progress_; }
  /// False: training begins anew, with these weights.
  [[nodiscard]] bool has_optimizer_state() const { return !optimizer_.files.empty(); }
  /// Before the trainer's first step. All processes call it. InputError that names file and tensor for values
  /// that are not finite in the trainer's type, or a negative second moment.
  void restore(Trainer& trainer) const;

 private:
  /// The tensors of a file or of an index's files, by name.
  struct Tensors {
    std::string path;
    std::vector<SafetensorsFile> files;
    std::map<std::string, size_t> file_of;
  };
  static Tensors read_tensors(const std::string& folder, const std::string& stem);
  void check(const Tensors& tensors, const std::vector<std::string>& prefixes) const;
  /// Values for a tensor of `type`.
  void read(const Tensors& tensors, const std::string& prefix, DType type, MatrixShard& shard) const;

  const ModelConfig& of_;
  Tensors model_, optimizer_;
  bool has_masters_ = false;
  TrainingProgress progress_;
};

/// The last checkpoint "step-…" in the folder, or the folder itself if there is none.
std::string last_checkpoint_in(const std::string& folder);

/// Name of the folder of a checkpoint after so many updates: "step-12".
std::string checkpoint_name(int updates);

/// Process 0 writes a checkpoint to an empty folder; all processes call it. Uses as few files as possible,
/// each of at most `largest` bytes or one tensor.
void write_checkpoint(Trainer& trainer, const Training& training, const TrainingProgress& progress,
                      const std::string& folder, bool root, int64_t largest = 4'000'000'000);

}  // namespace stp
