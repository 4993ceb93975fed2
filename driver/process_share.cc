#include "process_share.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "stp/processes/tcp.h"

namespace stp {
namespace {

std::string bytes_of(const ProcessShare& share) {
  Frame fields;
  fields.add(share.losses).add(share.step_times_s).add(std::vector{share.step_s});
  fields.add(std::count(share.known.begin(), share.known.end(), true));
  for (size_t op = 0; op < share.times.size(); ++op)
    if (share.known[op])
      fields.add(static_cast<int64_t>(op)).add(std::vector{share.times[op].start, share.times[op].end});
  for (const RankUse& use : share.uses) {
    fields.add(int64_t{use.world_rank}).add(std::ssize(use.peak_bytes));
    for (const auto& [kind, bytes] : use.peak_bytes) fields.add(kind).add(static_cast<int64_t>(bytes));
    fields.add(static_cast<int64_t>(use.peak_total)).add(use.all_reduce_bytes).add(use.sent_bytes);
    fields.add(static_cast<int64_t>(use.scratch_bytes));
    fields.add(use.share_in_graphs ? std::vector{*use.share_in_graphs} : std::vector<double>());
  }
  return fields.body();
}

RankUse read_use(Frame& fields) {
  RankUse use;
  use.world_rank = static_cast<int>(fields.number());
  const int64_t kinds = fields.number();
  for (int64_t i = 0; i < kinds; ++i) {
    const std::string kind = fields.text();
    use.peak_bytes[kind] = static_cast<size_t>(fields.number());
  }
  use.peak_total = static_cast<size_t>(fields.number());
  use.all_reduce_bytes = fields.number();
  use.sent_bytes = fields.number();
  use.scratch_bytes = static_cast<size_t>(fields.number());
  if (const std::vector<double> graphs = fields.values(); !graphs.empty()) use.share_in_graphs = graphs[0];
  return use;
}

ProcessShare read_share(const std::string& bytes, size_t ops) {
  Frame fields(0, bytes);
  ProcessShare share;
  share.losses = fields.values();
  share.step_times_s = fields.values();
  share.step_s = fields.values().at(0);
  share.times.resize(ops);
  share.known.resize(ops, false);
  const int64_t known = fields.number();
  for (int64_t i = 0; i < known; ++i) {
    const auto op = static_cast<size_t>(fields.number());
    const std::vector<double> time = fields.values();
    share.known.at(op) = true;
    share.times[op] = {time.at(0), time.at(1)};
  }
  while (!fields.done()) share.uses.push_back(read_use(fields));
  return share;
}

// Into the run's, which holds the shares of the processes before.
void add(ProcessShare& all, const ProcessShare& share, const Program& program, const RankGrid& grid) {
  const auto combine = [](std::vector<double>& whole, const std::vector<double>& part, auto with) {
    whole.resize(part.size());
    for (size_t i = 0; i < part.size(); ++i) whole[i] = with(whole[i], part[i]);
  };
  combine(all.losses, share.losses, std::plus<>());
  combine(all.step_times_s, share.step_times_s, [](double a, double b) { return std::max(a, b); });
  all.step_s = std::max(all.step_s, share.step_s);
  std::vector<bool> its(grid.pp, false);  // by pipeline rank: whether it has a rank here
  for (const RankUse& use : share.uses) {
    all.uses.push_back(use);
    its[grid.place(use.world_rank).pp] = true;
  }
  // Transfers are their senders', which all ran somewhere.
  for (OpId op = 0; op < share.times.size(); ++op) {
    if (!share.known[op] || !its[program.stream_of(op).rank] || all.known[op]) continue;
    all.known[op] = true;
    all.times[op] = share.times[op];
  }
}

}  // namespace

ProcessShare share_of_all(Backend& backend, const Program& program, const RankGrid& grid, ProcessShare own) {
  if (backend.processes() == 1) return own;
  ProcessShare all;
  all.times.resize(own.times.size());
  all.known.resize(own.known.size(), false);
  for (const std::string& share : backend.gather("the results", bytes_of(own)))
    add(all, read_share(share, own.times.size()), program, grid);
  return all;
}

double sum_of_all(Backend& backend, const std::string& name, double own) {
  if (backend.processes() == 1) return own;
  double sum = 0;
  for (const std::string& share : backend.gather(name, Frame().add(std::vector{own}).body()))
    sum += Frame(0, share).values().at(0);
  return sum;
}

}  // namespace stp
