#include <stdexcept>

#include "stp/base/error.h"
#include "stp/program/lower.h"

namespace stp {
namespace {

// Throws InputError if the lowering has an option that is not built with the vocabulary on all ranks.
void check_vocabulary(const Schedule& schedule, const Lowering& lowering) {
  if (vocabulary_of(schedule) == Vocabulary::whole) return;
  const auto refuse = [&](const std::string& field, const std::string& remedy) {
    throw InputError(
        "", field, "is not built with the vocabulary on all ranks, as " + schedule.name + " has it", remedy);
  };
  if (lowering.data_parallel && lowering.strategy.zero)
    refuse("zero", "set it to 0, or use another schedule");
  if (lowering.strategy.post_validation) refuse("post_validation", "leave it out");
  if (lowering.strategy.offload_chunks > 0) refuse("offload.chunks", "leave it out, or use another schedule");
  if (lowering.strategy.tp_overlap == TpOverlap::domino) refuse("tp_overlap", "leave it out");
  if (lowering.tied) refuse("model.tied", "use a model with an untied head, or another schedule");
  if (lowering.vision_layers > 0) refuse("model.vision_config", "use a model without, or another schedule");
}

}  // namespace

void check_lowering(const Schedule& schedule, const std::vector<int>& layers_per_stage,
                    const Lowering& lowering) {
  const int stages = schedule.placement.stages();
  if (static_cast<int>(layers_per_stage.size()) != stages)
    throw InputError("", "layers_per_chunk",
                     "has " + std::to_string(layers_per_stage.size()) + " entries, but " + schedule.name +
                         " has " + std::to_string(schedule.pp()) + " ranks of " +
                         counted(schedule.chunks(), "chunk"),
                     "write " + std::to_string(stages) + " entries, one per virtual stage");
  for (const int layers : layers_per_stage)
    if (layers < 0 || layers > INT16_MAX)
      throw InputError("", "layers_per_chunk", std::to_string(layers) + " is out of range",
                       "write numbers from 0 to " + std::to_string(INT16_MAX));
  if (lowering.vision_layers > 0 && (stages < 2 || layers_per_stage.front() > 0))
    throw InputError("", "layers_per_chunk",
                     stages < 2 ? "has one entry, but the vision encoder is a virtual stage of its own"
                                : "begins with " + std::to_string(layers_per_stage.front()) +
                                      ", but the first virtual stage is the vision encoder's",
                     stages < 2 ? "use more ranks or chunks" : "begin with 0");
  check_vocabulary(schedule, lowering);
  if (is_by_times(lowering.braid) && !lowering.order)
    throw std::logic_error("a braid by times without Lowering::order");
}

}  // namespace stp
