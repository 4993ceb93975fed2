#include <algorithm>
#include <cmath>

#include "compare_screen.h"
#include "profile_comparison.h"
#include "stp/cluster/profile_part.h"
#include "stp/report/machine_figures.h"
#include "stp/report/shapley.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

// A quantity with each subset of the differing parts taken over, and its shares.
struct Quantity {
  std::string name, schedule;  // of a throughput; "" of gains
  std::vector<double> values;
  std::vector<Share> shares;
};

json quantity_json(const Quantity& quantity, const std::vector<ProfilePart>& differing) {
  json parts = json::object();
  for (const ProfilePart part : kProfileParts) parts[to_string(part)] = {{"alone", 0.0}, {"shapley", 0.0}};
  for (size_t i = 0; i < differing.size(); ++i)
    parts[to_string(differing[i])] = {{"alone", quantity.shares[i].alone},
                                      {"shapley", quantity.shares[i].shapley}};
  return {{"of", quantity.name},
          {"schedule", quantity.schedule.empty() ? json(nullptr) : json(quantity.schedule)},
          {"from", quantity.values.front()},
          {"to", quantity.values.back()},
          {"parts", parts}};
}

// ---- in words ----

// What tells how good a machine is in `part`, here: "131 for 251 TFLOP/s over a layer's products".
std::string both(ProfilePart part, const Experiment& experiment, const HardwareProfile& from,
                 const HardwareProfile& to) {
  const Job job = job_of(experiment);
  const auto pair = [](double there, double here, int decimals, const std::string& unit) {
    return fixed(there, decimals) + " for " + fixed(here, decimals) + " " + unit;
  };
  switch (part) {
    case ProfilePart::compute: {
      const auto rate = [&](const HardwareProfile& profile) {
        return *gemm_rate(gemm_figures(profile, job.model, job.shape, job.implementation)) / 1e12;
      };
      return pair(rate(to), rate(from), 0, "TFLOP/s over a layer's products");
    }
    case ProfilePart::memory:
      return pair(to.memory_bytes_per_s / 1e9, from.memory_bytes_per_s / 1e9, 0, "GB/s");
    case ProfilePart::all_reduce: {
      const double bytes = hidden_bytes(job.model, job.shape);
      return pair(1e3 * all_reduce_seconds(to, bytes, experiment.tp),
                  1e3 * all_reduce_seconds(from, bytes, experiment.tp), 2, "ms each");
    }
    case ProfilePart::contention:
      return "compute keeps " + pair(to.contention_compute, from.contention_compute, 2, "of its speed") +
             ", all-reduces " + pair(to.contention_all_reduce, from.contention_all_reduce, 2, "of theirs");
    case ProfilePart::p2p: {
      const auto link = [&](const LinkProfile& there, const LinkProfile& here, const char* where) {
        return there == here
                   ? ""
                   : pair(there.bytes_per_s / 1e9, here.bytes_per_s / 1e9, 1, std::string("GB/s ") + where);
      };
      const std::string within = link(to.within_node, from.within_node, "within a node"),
                        between = link(to.between_nodes, from.between_nodes, "between nodes");
      return within + (within.empty() || between.empty() ? "" : ", ") + between;
    }
    case ProfilePart::launches:
      return pair(to.kernel_overhead_s * 1e6, from.kernel_overhead_s * 1e6, 1, "µs");
  }
  return "";
}

std::string tp_share_text(const Experiment& experiment, const Machine& from, const Machine& to) {
  const auto share = [&](const Machine& machine) {
    const Experiment there = on_machine(experiment, machine);
    return tp_communication_share(hardware_cost_table(
        job_of(there), machine.profile, std::vector<int>(there.pp, 1), Placement::loop(there.pp, 1)));
  };
  const auto here = share(from), there = share(to);
  if (!here || !there) return "";
  return " All-reduces are " + fixed(100 * *there, 1) + " % of a layer's forward for " +
         fixed(100 * *here, 1) + " %: there is " + (*there < *here ? "less" : "more") + " to hide.";
}

// One sentence or two on what moves the gain, read off the shares.
std::string words_of(const Quantity& gain, const std::vector<ProfilePart>& differing,
                     const GainQuestion& question, const Experiment& experiment, const Machine& from,
                     const Machine& to) {
  const double change = gain.values.back() - gain.values.front();
  std::string text = question.of + " gains " + fixed(100 * gain.values.back(), 1) + " % over " +
                     question.over + " on " + to.name + " for " + fixed(100 * gain.values.front(), 1) +
                     " % on " + from.name + ", " + points(change) + " points.";
  std::vector<size_t> order(differing.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(gain.shares[a].shapley) > std::abs(gain.shares[b].shapley);
  });
  constexpr double kWorthTelling = 0.0005;  // a twentieth of a point
  std::string with, against;
  for (const size_t i : order) {
    const double share = gain.shares[i].shapley;
    if (std::abs(share) < kWorthTelling) continue;
    std::string& list = (share < 0) == (change < 0) ? with : against;
    list += (list.empty() ? "" : "; then ") + describe(differing[i]) + " (" + points(share) + ": " +
            both(differing[i], experiment, from.profile, to.profile) + ")";
  }
  if (!with.empty()) text += " Most of it is " + with + ".";
  if (!against.empty()) text += " Against that work " + against + ".";
  std::string alike;
  for (const ProfilePart part : kProfileParts)
    if (std::find(differing.begin(), differing.end(), part) == differing.end())
      alike += (alike.empty() ? "" : ", ") + describe(part);
  if (!alike.empty()) text += " Alike in both profiles, and so without part in it: " + alike + ".";
  return text + tp_share_text(experiment, from, to);
}

}  // namespace

json attribute(const Machine& from, const Machine& to, const ComparedConfiguration& configuration,
               const std::vector<std::string>& schedules, const GainQuestion& question,
               ConfigurationSimulator& simulator) {
  const Experiment& experiment = configuration.experiment;
  if (!misfit(experiment, from.profile).empty() || !misfit(experiment, to.profile).empty()) return nullptr;
  std::vector<ProfilePart> differing;
  for (const ProfilePart part : kProfileParts)
    if (!same_part(from.profile, to.profile, part)) differing.push_back(part);

  // Throughputs by subset of the parts taken over, then by schedule; none for a schedule that refuses.
  std::vector<std::vector<std::optional<double>>> throughputs(size_t{1} << differing.size());
  for (size_t taken = 0; taken < throughputs.size(); ++taken) {
    Machine mixed = from;
    for (size_t i = 0; i < differing.size(); ++i)
      if ((taken >> i & 1) != 0) take_part(mixed.profile, to.profile, differing[i]);
    const Experiment there = on_machine(experiment, mixed);
    for (size_t schedule = 0; schedule < schedules.size(); ++schedule) {
      try {
        throughputs[taken].emplace_back(simulator.throughput(schedule, there));
      } catch (const InputError&) {
        throughputs[taken].emplace_back();
      }
    }
  }

  json quantities = json::array();
  std::string words;
  const auto add = [&](Quantity quantity, auto value_of) {
    for (const auto& of_subset : throughputs) {
      const std::optional<double> value = value_of(of_subset);
      if (!value) return;
      quantity.values.push_back(*value);
    }
    quantity.shares = shares_of(quantity.values);
    quantities.push_back(quantity_json(quantity, differing));
    if (quantity.name == "gain_over_baseline")
      words = words_of(quantity, differing, question, experiment, from, to);
  };
  add({"gain_over_baseline", "", {}, {}},
      [&](const auto& of_subset) { return gains_of(schedules, of_subset, question).over_baseline; });
  add({"gain_over_best", "", {}, {}},
      [&](const auto& of_subset) { return gains_of(schedules, of_subset, question).over_best; });
  for (size_t schedule = 0; schedule < schedules.size(); ++schedule)
    add({"throughput", schedules[schedule], {}, {}},
        [&](const auto& of_subset) { return of_subset[schedule]; });

  json same = json::array();
  for (const ProfilePart part : kProfileParts)
    if (std::find(differing.begin(), differing.end(), part) == differing.end())
      same.push_back(to_string(part));
  return {{"configuration", configuration_json(experiment)},
          {"from", from.name},
          {"to", to.name},
          {"alike", same},
          {"simulations", throughputs.size() * schedules.size()},
          {"quantities", quantities},
          {"words", words}};
}

}  // namespace stp
