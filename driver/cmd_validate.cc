#include <cstdio>
#include <optional>

#include "commands.h"
#include "progress.h"
#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "stp/schedule/read_schedule.h"
#include "stp/schedule/validate.h"
#include "stp/simulate/simulate.h"
#include "table.h"

namespace stp {

void validate_command(const std::string& file) {
  std::optional<ProgressBar> progress(std::in_place, "checking " + file, 3);
  Schedule schedule = read_schedule_file(file);
  progress->step();
  const std::vector<int> held = peak_activations(schedule), freed = peak_activations(schedule, true);
  const std::vector<int> layers(schedule.placement.stages(), 1);
  const Program program = lower(std::move(schedule), layers, {});
  const Timeline timeline = simulate(program, op_seconds(program, reference_costs(true)));
  progress->step();
  const int receives_ahead = issue_order(program).receives_ahead;
  progress.reset();
  std::printf("%s: valid: %s, p %d, v %d, m %d, placement %s\n", file.c_str(), program.schedule.name.c_str(),
              program.schedule.pp(), program.schedule.chunks(), program.schedule.all_microbatches(),
              program.schedule.placement.name().c_str());
  std::printf(
      "simulated with F = I = W = 1 and all-reduces of 0.25 per chunk and direction, no p2p time: step "
      "%.3f\n",
      timeline.step_s);
  Table table({"rank", "compute", "PP bubble", "TP bubble", "peak until W", "peak until I"});
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const RankTime& time = timeline.ranks[rank];
    table.add({std::to_string(rank), fixed(time.compute_s, 3), fixed(time.pp_bubble_s, 3),
               fixed(time.tp_bubble_s, 3), std::to_string(held[rank]), std::to_string(freed[rank])});
  }
  std::printf("%sTo avoid deadlock, a runtime must post %s ahead on each link, as stp run does\n",
              table.text().c_str(), counted(receives_ahead, "receive").c_str());
}

}  // namespace stp
