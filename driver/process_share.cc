#include "process_share.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace stp {
namespace {

using nlohmann::json;

// CBOR keeps all bits of a number.
std::string bytes_of(const json& document) {
  std::string bytes;
  json::to_cbor(document, bytes);
  return bytes;
}

json to_json(const ProcessShare& share) {
  json times = json::array();
  for (size_t op = 0; op < share.times.size(); ++op)
    if (share.known[op]) times.push_back({op, share.times[op].start, share.times[op].end});
  json uses = json::array();
  for (const RankUse& use : share.uses)
    uses.push_back({{"rank", use.world_rank},
                    {"peak_bytes", use.peak_bytes},
                    {"peak_total", use.peak_total},
                    {"all_reduce_bytes", use.all_reduce_bytes},
                    {"sent_bytes", use.sent_bytes},
                    {"scratch_bytes", use.scratch_bytes},
                    {"share_in_graphs", use.share_in_graphs ? json(*use.share_in_graphs) : json()}});
  return {{"losses", share.losses},
          {"step_times_s", share.step_times_s},
          {"step_s", share.step_s},
          {"times", times},
          {"uses", uses}};
}

// Into the run's, which holds the shares of the processes before.
void add(ProcessShare& all, const json& share, const Program& program, const RankGrid& grid) {
  const auto combine = [](std::vector<double>& whole, const std::vector<double>& part, auto with) {
    whole.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) whole[i] = with(whole[i], part[i]);
  };
  combine(all.losses, share.at("losses").get<std::vector<double>>(), std::plus<>());
  combine(all.step_times_s, share.at("step_times_s").get<std::vector<double>>(),
          [](double a, double b) { return std::max(a, b); });
  all.step_s = std::max(all.step_s, share.at("step_s").get<double>());
  std::vector<bool> its(grid.pp, false);  // by pipeline rank: whether it has a rank here
  for (const json& use : share.at("uses")) {
    all.uses.push_back({use.at("rank").get<int>(), use.at("peak_bytes").get<std::map<std::string, size_t>>(),
                        use.at("peak_total").get<size_t>(), use.at("all_reduce_bytes").get<int64_t>(),
                        use.at("sent_bytes").get<int64_t>(), use.at("scratch_bytes").get<size_t>(),
                        std::nullopt});
    if (const json& graphs = use.at("share_in_graphs"); !graphs.is_null())
      all.uses.back().share_in_graphs = graphs.get<double>();
    its[grid.place(all.uses.back().world_rank).pp] = true;
  }
  // Transfers are their senders', which all ran somewhere.
  for (const json& time : share.at("times")) {
    const auto op = time.at(0).get<OpId>();
    if (!its[program.stream_of(op).rank] || all.known[op]) continue;
    all.known[op] = true;
    all.times[op] = {time.at(1).get<double>(), time.at(2).get<double>()};
  }
}

}  // namespace

ProcessShare share_of_all(Backend& backend, const Program& program, const RankGrid& grid, ProcessShare own) {
  if (backend.processes() == 1) return own;
  ProcessShare all;
  all.times.resize(own.times.size());
  all.known.resize(own.known.size(), false);
  for (const std::string& share : backend.gather("the results", bytes_of(to_json(own))))
    add(all, json::from_cbor(share), program, grid);
  return all;
}

double sum_of_all(Backend& backend, const std::string& name, double own) {
  if (backend.processes() == 1) return own;
  double sum = 0;
  for (const std::string& share : backend.gather(name, bytes_of(own)))
    sum += json::from_cbor(share).get<double>();
  return sum;
}

}  // namespace stp
