#include "process_share.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "stp/base/json_input.h"

template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& value, const std::optional<T>& of) { value = of ? json(*of) : json(); }
  static void from_json(const json& value, std::optional<T>& of) {
    if (!value.is_null()) of = value.get<T>();
  }
};

namespace stp {

static void to_json(nlohmann::json& value, const OpTime& time) { value = {time.start, time.end}; }
static void from_json(const nlohmann::json& value, OpTime& time) { time = {value.at(0), value.at(1)}; }
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankUse, world_rank, peak_bytes, peak_total, scratch_bytes,
                                   share_in_graphs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessShare, losses, step_times_s, times, known, step_s, uses)

namespace {

using nlohmann::json;

// Merges a share into the run's share, which contains those of earlier processes.
void add(ProcessShare& all, const ProcessShare& share, const Program& program, const RankGrid& grid) {
  const auto combine = [](std::vector<double>& whole, const std::vector<double>& part, auto with) {
    whole.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) whole[i] = with(whole[i], part[i]);
  };
  combine(all.losses, share.losses, std::plus<>());
  combine(all.step_times_s, share.step_times_s, [](double a, double b) { return std::max(a, b); });
  all.step_s = std::max(all.step_s, share.step_s);
  std::vector<bool> its(grid.pp, false);  // by pipeline rank: the process has a rank of it
  for (const RankUse& use : share.uses) {
    all.uses.push_back(use);
    its[grid.place(use.world_rank).pp] = true;
  }
  // Transfers belong to their senders, which all ran in some process.
  for (OpId op = 0; op < share.times.size(); ++op) {
    if (all.known.at(op) || !share.known[op] || !its[program.stream_of(op).rank]) continue;
    all.known[op] = true;
    all.times[op] = share.times[op];
  }
}

}  // namespace

ProcessShare share_of_all(Processes& processes, const Program& program, const RankGrid& grid,
                          ProcessShare own) {
  if (processes.count() == 1) return own;
  ProcessShare all;
  all.times.resize(own.times.size());
  all.known.resize(own.known.size(), false);
  std::string bytes;
  json::to_msgpack(own, bytes);  // which keeps all bits of a double
  for (const std::string& share : processes.gather(std::move(bytes)))
    add(all, json::from_msgpack(share).get<ProcessShare>(), program, grid);
  return all;
}

double sum_of_all(Processes& processes, double own) {
  double sum = 0;
  for (const std::string& share : processes.gather(json_text(json(own)))) sum += std::stod(share);
  return sum;
}

}  // namespace stp
