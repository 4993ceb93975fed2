#include "training_checkpoints.h"

#include "interrupt.h"
#include "output_folder.h"
#include "progress.h"
#include "stp/model/hugging_face.h"

namespace stp {

TrainingCheckpoints::TrainingCheckpoints(const CheckpointOptions& options, const Training& training,
                                         int steps)
    : options_(options),
      training_(training),
      steps_(steps),
      resumed_(options.resume.empty() ? std::nullopt
                                      : std::make_optional<Checkpoint>(options.resume, training.model)) {
  if (resumed_) progress_ = resumed_->progress();
  if (!options.save.empty()) check_hugging_face_has(training.model, "--save");
}

bool TrainingCheckpoints::saves_after(int step) const {
  return !options_.save.empty() && (step == steps_ || (options_.every > 0 && step % options_.every == 0));
}

std::filesystem::path TrainingCheckpoints::folder_after(int updates) const {
  return std::filesystem::path(options_.save) / checkpoint_name(updates);
}

void TrainingCheckpoints::check_folders() const {
  if (options_.save.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(options_.save, ignored);
  // The first says whether folders can be made; each further one is made only to be refused.
  bool any = false;
  for (int step = 1; step <= steps_; ++step) {
    if (!saves_after(step)) continue;
    const std::filesystem::path folder = folder_after(progress_.updates + step);
    if (!any || std::filesystem::exists(folder, ignored))
      OutputFolder(folder, OutputFolder::Taken::refuse, "--save");
    any = true;
  }
}

void TrainingCheckpoints::step_done(Trainer& trainer, int samples, bool root) {
  ++progress_.updates;
  progress_.samples += samples;
  if (!saves_after(++step_)) return;
  if (!interrupted())  // a checkpoint that is due is kept even so
    begin_phase("saving step " + std::to_string(progress_.updates));
  std::optional<OutputFolder> folder;
  if (root) folder.emplace(folder_after(progress_.updates), OutputFolder::Taken::refuse, "--save");
  write_checkpoint(trainer, training_, progress_, root ? folder->path().string() : "", root);
  if (!root) return;
  const RunGuard::Work work(trainer.guard());  // the others wait for the disk, too
  folder->publish_on_disk();
  note_kept(folder->target().string() + " is whole, and --resume " + options_.save +
            " trains run.steps more from it");
}

}  // namespace stp
