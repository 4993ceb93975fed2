#include "replay.h"

#include <string>

#include "stp/base/error.h"

namespace stp {

void check_replay(const Scenario& scenario, int rank) {
  for (const Experiment& experiment : scenario.experiments) {
    const std::string field = experiment.field.empty() ? "" : experiment.field + ".";
    const int world = experiment.strategy.world_size();
    if (rank >= world)
      throw InputError(scenario.file, field + "parallel",
                       "has " + std::to_string(world) + " ranks, and no rank " + std::to_string(rank),
                       "use --replay-rank 0 to " + std::to_string(world - 1));
    if (experiment.strategy.post_validation)
      throw InputError(scenario.file, field + "post_validation",
                       "is not possible in a replay, which receives no norms from other ranks", "remove it");
    if (experiment.run && experiment.run->parity)
      throw InputError(scenario.file, field + "run.parity",
                       "is not possible in a replay, which receives no data from other ranks",
                       "leave it out, or run without --replay-rank");
  }
}

}  // namespace stp
