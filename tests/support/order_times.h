// When the actions of an order run, by the two rules of tests/golden/README.md.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stp/schedule/schedule.h"
#include "stp/schedule/validate.h"
#include "stp/schedule/vocabulary.h"

namespace stp {

/// How far sums of costs may be off; and costs of passes.
inline constexpr double kEpsilon = 1e-9;
inline constexpr PassCosts kEqual{1, 1, 1, 0}, kUnequal{1, 1, 0.7, 0.05};

/// A braid starts when all its inputs are ready and releases all outputs at its end, or its actions run one
/// after the other.
enum class Braids { atomic, in_turn };

struct OrderTimes {
  std::vector<double> first, last;  // by rank: when its first action starts and its last one ends

  [[nodiscard]] double makespan() const { return *std::ranges::max_element(last); }
  [[nodiscard]] double longest_span() const {
    double longest = 0;
    for (size_t rank = 0; rank < first.size(); ++rank) longest = std::max(longest, last[rank] - first[rank]);
    return longest;
  }
};

inline std::string title(const Schedule& schedule) {
  return schedule.name + " p=" + std::to_string(schedule.pp()) +
         " m=" + std::to_string(schedule.microbatches);
}

inline double cost_of(Pass pass, const PassCosts& costs) {
  if (is_of_vocabulary(pass)) return 0;
  return std::array{costs.F, costs.I, costs.W, costs.I + costs.W}[static_cast<size_t>(pass)];
}

/// When the output of a pass leaves, by virtual stage and microbatch.
class Outputs {
 public:
  Outputs(const Schedule& schedule, double p2p)
      : placement_(schedule.placement),
        p2p_(p2p),
        microbatches_(schedule.microbatches),
        forward_(static_cast<size_t>(placement_.stages()) * microbatches_, kNever),
        backward_(forward_),
        shared_(vocabulary_of(schedule)) {}

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// When the input of an action is there, whose rank reaches it `now`.
  [[nodiscard]] double input(int rank, const Action& action, double now) {
    const int stage = placement_.stage(rank, action.chunk);
    const auto from = [&](const std::vector<double>& ends, int other) {
      return ends[index(other, action)] + (placement_.rank_of(other) == rank ? 0 : p2p_);
    };
    if (action.pass == Pass::W || action.pass == Pass::E) return 0;  // W's I is before it on its rank
    const bool first = placement_.is_first(stage), last = placement_.is_last(stage);
    const auto of_all = [&](Pass pass) {
      const int summing = placement_.rank_of(pass == Pass::E ? 0 : placement_.stages() - 1);
      if (rank == summing) needed_.try_emplace({pass, action.microbatch}, now);
      const auto needed = needed_.find({pass, action.microbatch});
      const auto& [ranks, latest] = ends_[{pass, action.microbatch}];
      const bool all = ranks == placement_.ranks() && needed != needed_.end();
      return all ? std::max(latest, needed->second) : kNever;
    };
    if (action.pass == Pass::S)
      return forward_[static_cast<size_t>(placement_.stages() - 1) * microbatches_ + action.microbatch];
    if (action.pass == Pass::T || action.pass == Pass::U) return of_all(Pass::S);
    if (action.pass == Pass::G) return backward_[action.microbatch];
    if (shared_ != Vocabulary::whole && action.pass == Pass::F && first) return of_all(Pass::E);
    if (shared_ != Vocabulary::whole && action.pass != Pass::F && last)
      return of_all(shared_ == Vocabulary::one_barrier ? Pass::S : Pass::T);
    if (action.pass == Pass::F) return first ? 0 : from(forward_, stage - 1);
    return last ? from(forward_, stage) : from(backward_, stage + 1);
  }
  void leave(int rank, const Action& action, double time) {
    if (is_of_vocabulary(action.pass)) {
      auto& [ranks, latest] = ends_[{action.pass, action.microbatch}];
      ++ranks;
      latest = std::max(latest, time);
      return;
    }
    const size_t at = index(placement_.stage(rank, action.chunk), action);
    if (action.pass == Pass::F) forward_[at] = time;
    if (is_backward(action.pass)) backward_[at] = time;
  }

 private:
  [[nodiscard]] size_t index(int stage, const Action& action) const {
    return static_cast<size_t>(stage) * microbatches_ + action.microbatch;
  }

  const Placement& placement_;
  const double p2p_;
  const int microbatches_;
  std::vector<double> forward_, backward_;
  const Vocabulary shared_;
  std::map<std::pair<Pass, int>, double> needed_;                // when the rank that sums up needs a sum
  std::map<std::pair<Pass, int>, std::pair<int, double>> ends_;  // of the vocabulary's: ranks, latest end
};

inline OrderTimes run_order(const Schedule& schedule, const PassCosts& costs,
                            Braids braids = Braids::atomic) {
  const int p = schedule.pp();
  std::vector<std::vector<Block>> ranks(p);
  for (int rank = 0; rank < p; ++rank)
    for (const Block& block : schedule.ranks[rank])
      if (braids == Braids::atomic)
        ranks[rank].push_back(block);
      else
        ranks[rank].insert(ranks[rank].end(), block.actions().begin(), block.actions().end());
  Outputs outputs(schedule, costs.p2p);
  OrderTimes run{std::vector<double>(p, Outputs::kNever), std::vector<double>(p, 0)};
  std::vector<size_t> next(p, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < p; ++rank)
      for (; next[rank] < ranks[rank].size(); ++next[rank], moved = true) {
        const Block& block = ranks[rank][next[rank]];
        double start = run.last[rank], cost = 0;
        for (const Action& action : block.actions()) {
          start = std::max(start, outputs.input(rank, action, run.last[rank]));
          cost += cost_of(action.pass, costs);
        }
        if (start == Outputs::kNever) break;
        run.first[rank] = std::min(run.first[rank], start);
        run.last[rank] = start + cost;
        for (const Action& action : block.actions()) outputs.leave(rank, action, run.last[rank]);
      }
  }
  for (int rank = 0; rank < p; ++rank)
    if (next[rank] < ranks[rank].size()) ADD_FAILURE() << title(schedule) << ": rank " << rank << " is stuck";
  return run;
}

/// How much longer an order takes than a rank's own work.
inline double bubble(const Schedule& schedule, const PassCosts& costs, Braids braids = Braids::atomic) {
  return run_order(schedule, costs, braids).makespan() -
         schedule.chunks() * schedule.microbatches * (costs.F + costs.I + costs.W);
}

}  // namespace stp
