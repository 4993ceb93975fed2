#include "stp/schedule/validate.h"

#include <algorithm>
#include <array>
#include <span>

#include "stp/base/error.h"
#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/timing.h"

namespace stp {
namespace {

std::string place(int rank, size_t position, const Action& action) {
  return "rank " + std::to_string(rank) + ", block " + std::to_string(position) + ", " + to_string(action);
}

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw InputError("", where, why, "correct the order");
}

// Each rank alone: ranges, counts, W after I.
void check_complete(const Schedule& schedule) {
  const int v = schedule.chunks(), m = schedule.microbatches;
  if (static_cast<int>(schedule.ranks.size()) != schedule.pp())
    refuse("ranks", "there are " + std::to_string(schedule.ranks.size()) + " lists for " +
                        std::to_string(schedule.pp()) + " ranks");
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    std::vector<std::array<bool, 4>> seen(static_cast<size_t>(v) * m);
    for (size_t position = 0; position < schedule.ranks[rank].size(); ++position) {
      const Block& block = schedule.ranks[rank][position];
      if (block.actions().empty()) refuse("rank " + std::to_string(rank), "has an empty block");
      for (const Action& action : block.actions()) {
        const auto refuse_here = [&](const std::string& why) { refuse(place(rank, position, action), why); };
        if (action.chunk < 0 || action.chunk >= v)
          refuse_here("there is no chunk " + std::to_string(action.chunk) + ", a rank has " +
                      std::to_string(v));
        if (action.microbatch < 0 || action.microbatch >= m)
          refuse_here("there is no microbatch " + std::to_string(action.microbatch) + ", there are " +
                      std::to_string(m));
        auto& passes = seen[static_cast<size_t>(action.chunk) * m + action.microbatch];
        const auto has = [&](Pass pass) -> bool& { return passes[static_cast<int>(pass)]; };
        if (has(action.pass)) refuse_here("appears a second time");
        if (action.pass == Pass::B && (has(Pass::I) || has(Pass::W)))
          refuse_here("is a full backward, but its I or W is there too");
        if ((action.pass == Pass::I || action.pass == Pass::W) && has(Pass::B))
          refuse_here("follows a full backward, which includes it");
        if (action.pass != Pass::F && !has(Pass::F)) refuse_here("precedes its F");
        if (action.pass == Pass::W && !has(Pass::I)) refuse_here("precedes its I");
        has(action.pass) = true;
      }
      if (block.braided()) {
        const Action &a = block.actions()[0], &b = block.actions()[1];
        if (a.chunk == b.chunk && a.microbatch == b.microbatch)
          refuse(place(rank, position, b), "is braided with " + to_string(a) + ", on which it depends");
      }
    }
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int microbatch = 0; microbatch < m; ++microbatch) {
        const auto& passes = seen[static_cast<size_t>(chunk) * m + microbatch];
        const auto missing = [&](Pass pass) {
          refuse("rank " + std::to_string(rank),
                 to_string(Action{pass, static_cast<int16_t>(chunk), microbatch}) + " is missing");
        };
        if (!passes[static_cast<int>(Pass::F)]) missing(Pass::F);
        if (passes[static_cast<int>(Pass::B)]) continue;
        if (!passes[static_cast<int>(Pass::I)]) missing(Pass::B);
        if (!passes[static_cast<int>(Pass::W)]) missing(Pass::W);
      }
    }
  }
}

// All ranks together: whether every block can start.
void check_deadlock(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  const int stages = placement.stages();
  const Timing timing = time_blocks(schedule);
  const auto is_done = [&](int rank, int wanted, int microbatch) {
    const auto is_it = [&](const Action& action) {
      return action.pass != Pass::W && action.microbatch == microbatch &&
             hop_of(placement, rank, action) == wanted;
    };
    return std::ranges::any_of(
        std::span(schedule.ranks[rank]).first(timing[rank].size()),
        [&](const Block& block) { return std::ranges::any_of(block.actions(), is_it); });
  };
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const size_t stuck = timing[rank].size();
    if (stuck == schedule.ranks[rank].size()) continue;
    for (const Action& action : schedule.ranks[rank][stuck].actions()) {
      if (action.pass == Pass::W) continue;
      const int before = hop_of(placement, rank, action) - 1;
      if (before < 0) continue;
      const int stage = stage_of_hop(stages, before), owner = placement.rank_of(stage);
      if (is_done(owner, before, action.microbatch)) continue;
      const size_t stuck_there = timing[owner].size();
      refuse(place(rank, stuck, action),
             std::string("deadlock: it waits for the ") + (before < stages ? "activation" : "gradient") +
                 " of microbatch " + std::to_string(action.microbatch) + " from virtual stage " +
                 std::to_string(stage) + " on rank " + std::to_string(owner) +
                 ", which comes at or after that rank's block " + std::to_string(stuck_there) + ", " +
                 to_string(schedule.ranks[owner][stuck_there]) + ", which cannot start");
    }
  }
}

}  // namespace

void validate(const Schedule& schedule) {
  check_complete(schedule);
  check_deadlock(schedule);
}

std::vector<int> peak_activations(const Schedule& schedule, bool freed_at_I) {
  std::vector<int> peaks;
  for (const auto& blocks : schedule.ranks) {
    int alive = 0, peak = 0;
    for (const Block& block : blocks) {
      for (const Action& action : block.actions()) alive += action.pass == Pass::F;
      peak = std::max(peak, alive);
      for (const Action& action : block.actions())
        alive -= action.pass == Pass::B || action.pass == (freed_at_I ? Pass::I : Pass::W);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stp
