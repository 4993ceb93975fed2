#include "run_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "output_folder.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::string scientific(double value) { return shown("%.1e", value); }

std::vector<std::string> columns(const DeviceOptions& devices, bool predicted) {
  std::vector<std::string> names = axis_heads();
  names.insert(names.begin(), {"schedule", "model", "type"});
  names.insert(names.end(), {"m", "step, s", "samples/s", "PP bubble", "TP bubble", "saved, MB", "BLAS",
                             "GFLOP/s", "loss", "parity: loss", "gradient"});
  if (predicted) names.insert(names.end(), {"predicted, s", "error"});
  if (devices.time_kernels) names.insert(names.end(), {"kernels, s", "step / kernels"});
  if (devices.replay) names.insert(names.end(), {"late, ms", "latest call, ms"});
  return names;
}

std::vector<std::string> cells_of(const Result& result, double step_s) {
  const Measured& measured = *result.measured;
  const Configuration& c = result.configuration;
  const RankResult& busiest = result.busiest_rank();
  std::vector<std::string> cells = axis_cells(c.strategy);
  cells.insert(cells.begin(), {result.schedule, c.model, measured.type});
  cells.insert(cells.end(),
               {std::to_string(c.microbatches), fixed(result.step_time_s(), 4), fixed(result.throughput(), 2),
                share_text(busiest.pp_bubble_s / step_s), share_text(busiest.tp_bubble_s / step_s),
                result.peak_memory_gb() ? fixed(1000 * *result.peak_memory_gb(), 2) : "–",
                share_text(measured.blas ? std::optional(measured.blas->share) : std::nullopt, 0),
                measured.blas ? fixed(measured.blas->gflop_per_s, 1) : "–",
                measured.losses.empty() ? "–" : fixed(measured.losses.back(), 4),
                measured.parity ? scientific(measured.parity->loss) : "–",
                measured.parity ? scientific(measured.parity->gradient) : "–"});
  return cells;
}

// Delays of emulated calls: the mean per step, and the maximum with its kind of group.
std::vector<std::string> lateness_cells(const Replayed& replayed, size_t steps) {
  double sum = 0, latest = 0;
  std::string where;
  for (const auto& [kind, group] : replayed.groups) {
    sum += group.late_s;
    if (group.latest_s <= latest) continue;
    latest = group.latest_s;
    where = " (" + kind + ")";
  }
  return {fixed(1000 * sum / static_cast<double>(steps), 3), fixed(1000 * latest, 3) + where};
}

// "" if it equals one rank.
std::string difference_from_one_rank(const Result& result) {
  const Parity& parity = *result.measured->parity;
  const Equality equality = equality_of(parity, result.measured->type);
  if (equality == Equality::equal) return "";
  return result.schedule + ", " + ranks_text(to_json(result)) + ", " + result.measured->type + ": loss " +
         scientific(parity.loss) + ", gradient " + scientific(parity.gradient) +
         (parity.one_rank_gradient ? ", of one rank " + scientific(*parity.one_rank_gradient) : "") +
         (equality == Equality::too_inexact ? ": too inexact to be compared" : "");
}

}  // namespace

RunReport::RunReport(const DeviceOptions& devices, std::optional<std::string> predicted_by, bool one_device)
    : predicted_by_(std::move(predicted_by)),
      one_device_(one_device),
      replayed_(devices.replay.has_value()),
      head_(columns(devices, predicted_by_.has_value())) {}

std::string RunReport::prediction_errors() const {
  std::string text;
  if (disturbed_ > 0)
    text += std::to_string(disturbed_) +
            " rows were measured while the machine was disturbed and are left out:\n";
  constexpr const char* kKinds[] = {"a processor for every rank", "more ranks than processors"};
  for (size_t kind = 0; kind < 2; ++kind) {
    const std::vector<double>& some = errors_[kind];
    if (some.empty()) continue;
    const double mean = std::accumulate(some.begin(), some.end(), 0.0) / static_cast<double>(some.size());
    text += "predicted by " + *predicted_by_ + ", " + kKinds[kind] + ": mean absolute error " +
            fixed(100 * mean, 1) + " %, maximum " +
            fixed(100 * *std::max_element(some.begin(), some.end()), 1) + " %, over " +
            counted(some.size(), "row") + "\n";
  }
  return text;
}

json RunReport::line_of(const MeasuredRun& run) {
  const Result& result = run.result;
  const Measured& measured = *result.measured;
  std::vector<std::string> cells = cells_of(result, run.timeline.step_s);
  const auto append = [&](const std::vector<std::string>& more) {
    cells.insert(cells.end(), more.begin(), more.end());
  };
  json line;
  if (measured.parity) line["differs"] = difference_from_one_rank(result);
  if (measured.predicted) {
    const Prediction& predicted = *measured.predicted;
    const double error = predicted.step_time_s / result.step_time_s() - 1;
    // If the machine was disturbed in most steps, a row is no evidence about the prediction.
    const bool disturbed = 2 * predicted.disturbed_steps >= static_cast<int>(result.step_times_s.size());
    line.update({{"error", error}, {"shared", predicted.oversubscribed}, {"disturbed", disturbed}});
    append({fixed(predicted.step_time_s, 4), fixed(100 * error, 1) + " %" +
                                                 (predicted.oversubscribed ? " (shared)" : "") +
                                                 (disturbed ? " (disturbed)" : "")});
  }
  if (measured.kernel_time_s)
    append({fixed(*measured.kernel_time_s, 4), fixed(result.step_time_s() / *measured.kernel_time_s, 3)});
  if (measured.replayed) append(lateness_cells(*measured.replayed, result.step_times_s.size()));
  line["cells"] = cells;
  return line;
}

void RunReport::add(const json& line, const Experiment& experiment, const ScheduleChoice& choice) {
  options_.add(experiment, choice);
  lines_.push_back(line.at("cells"));
  if (line.contains("differs")) {
    ++compared_;
    if (const std::string differs = line.at("differs"); !differs.empty()) broken_.push_back(differs);
  }
  if (!line.contains("error")) return;
  if (line.at("disturbed"))
    ++disturbed_;
  else
    errors_[line.at("shared").get<bool>() ? 1 : 0].push_back(std::abs(line.at("error").get<double>()));
}

std::string RunReport::text() const {
  std::string text = options_.table(head_, lines_, std::ranges::find(head_, "m") - head_.begin() + 1).text();
  if (one_device_ && !replayed_)
    text += "All ranks took turns on one device: the times do not hold for ranks with a device each\n";
  if (replayed_)
    text +=
        "late: total delay of a step's calls beyond their emulated links' times; latest: the maximum of one "
        "call\n";
  if (refused_ > 0)
    text +=
        std::to_string(refused_) + " combinations are beyond their schedule's range (stp list schedules)\n";
  if (predicted_by_) text += prediction_errors();
  if (compared_ > 0)
    text += "parity: " + std::to_string(compared_ - broken_.size()) + " of " + std::to_string(compared_) +
            " cases equal one rank\n";
  return text;
}

std::string RunReport::failure() const {
  if (broken_.empty()) return "";
  std::string text =
      std::to_string(broken_.size()) + " of " + std::to_string(compared_) + " cases do not equal one rank";
  for (const std::string& each : broken_) text += "\n  " + each;
  return text;
}

}  // namespace stp
