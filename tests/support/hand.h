// Programs written by hand, with the seconds of their ops.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "stp/simulate/simulate.h"

namespace stp {

struct Hand {
  explicit Hand(int ranks)
      : program{.schedule = {"by hand", Placement::loop(ranks, 1), 1, {}}, .depends_begin = {0}} {
    program.schedule.ranks.resize(ranks);
  }

  uint32_t stream(StreamKind kind, int rank, int peer = -1) {
    for (uint32_t i = 0; i < program.streams.size(); ++i) {
      const ProgramStream& s = program.streams[i];
      if (s.kind == kind && s.rank == rank && s.peer == peer) return i;
    }
    program.streams.push_back({kind, rank, peer});
    return static_cast<uint32_t>(program.streams.size() - 1);
  }
  OpId add(OpKind kind, uint32_t on, double cost, const std::vector<OpId>& depends) {
    program.ops.push_back(
        {.kind = kind, .unit = Unit::attn, .unit_pass = UnitPass::F, .pass = Pass::F, .block = -1});
    program.on_stream.push_back(on);
    program.depends.insert(program.depends.end(), depends.begin(), depends.end());
    program.depends_begin.push_back(static_cast<uint32_t>(program.depends.size()));
    seconds.push_back(cost);
    return static_cast<OpId>(program.ops.size() - 1);
  }
  OpId compute(int rank, double cost, const std::vector<OpId>& depends = {}) {
    return add(OpKind::compute, stream(StreamKind::compute, rank), cost, depends);
  }
  OpId all_reduce(int rank, double cost, const std::vector<OpId>& depends = {}) {
    stream(StreamKind::compute, rank);
    return add(OpKind::all_reduce, stream(StreamKind::tp, rank), cost, depends);
  }
  OpId transfer(int rank, int peer, double cost, const std::vector<OpId>& depends = {}) {
    return add(OpKind::transfer, stream(StreamKind::p2p, rank, peer), cost, depends);
  }
  /// Simulates the ops by rank, each rank's in the order of this list, and gives them their times here.
  [[nodiscard]] Timeline run(const Contention& contention = {}, const Processors& processors = {}) const {
    Program by_rank = program;
    std::vector<OpId> here(program.ops.size()), there(program.ops.size());
    std::iota(here.begin(), here.end(), OpId{0});
    const auto rank_of = [&](OpId op) { return program.stream_of(op).rank; };
    std::ranges::stable_sort(here, {}, rank_of);
    for (OpId op = 0; op < here.size(); ++op) there[here[op]] = op;
    std::vector<double> costs;
    by_rank.depends.clear();
    for (OpId op = 0; op < here.size(); ++op) {
      by_rank.ops[op] = program.ops[here[op]];
      by_rank.on_stream[op] = program.on_stream[here[op]];
      costs.push_back(seconds[here[op]]);
      for (const OpId needed : program.dependencies(here[op])) by_rank.depends.push_back(there[needed]);
      by_rank.depends_begin[op + 1] = static_cast<uint32_t>(by_rank.depends.size());
    }
    for (int rank = 0; rank <= program.schedule.pp(); ++rank)
      by_rank.rank_begin.push_back(
          static_cast<OpId>(std::ranges::count_if(here, [&](OpId op) { return rank_of(op) < rank; })));
    const Timeline sorted = simulate(by_rank, costs, contention, processors);
    Timeline timeline = sorted;
    for (OpId op = 0; op < here.size(); ++op) {
      timeline.start[here[op]] = sorted.start[op];
      timeline.end[here[op]] = sorted.end[op];
    }
    return timeline;
  }

  Program program;
  std::vector<double> seconds;
};

/// The rates of the paper, Table 11.
inline constexpr Contention kPaper{0.83, 0.9};

}  // namespace stp
