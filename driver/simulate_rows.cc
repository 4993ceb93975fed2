#include <algorithm>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "interrupt.h"
#include "progress.h"
#include "run_simulated.h"

namespace stp {

void simulate_rows(const Scenario& scenario, const RowVisit& visit, const FinishedRow& finished) {
  ProgressBar progress("simulating " + scenario.name, scenario.rows());
  std::vector<std::pair<const Experiment*, const ScheduleChoice*>> rows;
  for (const Experiment& experiment : scenario.experiments)
    for (const ScheduleChoice& choice : experiment.schedules) rows.emplace_back(&experiment, &choice);
  const auto begin = [&](const auto& row) -> std::future<SimulatedRun> {
    if (finished && finished(*row.first, *row.second)) return {};
    return std::async(std::launch::async,
                      [&scenario, &row] { return run_simulated(*row.second, *row.first, scenario.file); });
  };
  // Twice as many at once as there are cores, which then have work while a long row is waited for; not more
  // than 16, for their memory.
  const size_t at_once = 2 * std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
  std::deque<std::future<SimulatedRun>> begun;
  bool any = false;
  for (size_t row = 0; row < rows.size(); ++row) {
    check_interrupted();
    while (begun.size() < std::min(at_once, rows.size() - row))
      begun.push_back(begin(rows[row + begun.size()]));
    const auto& [experiment, choice] = rows[row];
    const bool known = !begun.front().valid();
    std::optional<SimulatedRun> run;
    try {
      if (!known) run = begun.front().get();
      any = true;
    } catch (const InputError& error) {
      if (scenario.invalid == Invalid::refuse) throw;
      say_left_out(experiment->name, error);
    }
    begun.pop_front();
    if (known || run) visit(std::move(run), *experiment, *choice);
    progress.step();
  }
  check_interrupted();
  if (!any)
    throw InputError(scenario.file, "schedules", "refuse all configurations", "correct at least one of them");
}

}  // namespace stp
