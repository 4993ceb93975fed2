#include "stp/schedule/validate.h"

#include <algorithm>
#include <array>
#include <optional>

#include "stp/base/error.h"

namespace stp {
namespace {

std::string place(int rank, size_t position, const Action& action) {
  return "rank " + std::to_string(rank) + ", block " + std::to_string(position) + ", " + to_string(action);
}

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw InputError("", where, why, "mend the order");
}

// Each rank by itself: ranges, counts, W after I.
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
        if (has(action.pass)) refuse_here("stands there a second time");
        if (action.pass == Pass::B && (has(Pass::I) || has(Pass::W)))
          refuse_here("is a full backward of what I or W have begun");
        if ((action.pass == Pass::I || action.pass == Pass::W) && has(Pass::B))
          refuse_here("follows a full backward that did it already");
        if (action.pass != Pass::F && !has(Pass::F)) refuse_here("stands before its F");
        if (action.pass == Pass::W && !has(Pass::I)) refuse_here("stands before its I");
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

// All ranks together: play the blocks, each as soon as its inputs are there, and see whether all are reached.
class Player {
 public:
  explicit Player(const Schedule& schedule)
      : schedule_(schedule),
        next_(schedule.pp(), 0),
        done_{std::vector<bool>(states()), std::vector<bool>(states())},
        waiting_{std::vector<int>(states(), -1), std::vector<int>(states(), -1)} {}

  void play() {
    std::vector<int> runnable;
    for (int rank = schedule_.pp() - 1; rank >= 0; --rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.back();
      runnable.pop_back();
      const auto& blocks = schedule_.ranks[rank];
      for (; next_[rank] < blocks.size(); ++next_[rank]) {
        const Block& block = blocks[next_[rank]];
        if (const auto missing = missing_input(rank, block)) {
          waiting_[missing->backward][index(*missing)] = rank;
          break;
        }
        for (const Action& action : block.actions()) finish(rank, action, runnable);
      }
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank)
      if (next_[rank] < schedule_.ranks[rank].size()) report(rank);
  }

 private:
  // The output of a virtual stage for a microbatch: its activation (forward) or its input's gradient
  // (backward).
  struct Output {
    bool backward;
    int stage, microbatch;
  };

  [[nodiscard]] size_t states() const {
    return static_cast<size_t>(schedule_.placement.stages()) * schedule_.microbatches;
  }
  [[nodiscard]] size_t index(const Output& output) const {
    return static_cast<size_t>(output.stage) * schedule_.microbatches + output.microbatch;
  }

  // What `action` waits for besides its own rank's order, if anything.
  [[nodiscard]] std::optional<Output> input(int rank, const Action& action) const {
    const int stage = schedule_.placement.stage(rank, action.chunk);
    if (action.pass == Pass::F && stage > 0) return Output{false, stage - 1, action.microbatch};
    if (!is_backward(action.pass)) return std::nullopt;
    const bool last = stage + 1 == schedule_.placement.stages();
    return last ? Output{false, stage, action.microbatch} : Output{true, stage + 1, action.microbatch};
  }

  [[nodiscard]] std::optional<Output> missing_input(int rank, const Block& block) const {
    for (const Action& action : block.actions()) {
      const auto needed = input(rank, action);
      if (needed && !done_[needed->backward][index(*needed)]) return needed;
    }
    return std::nullopt;
  }

  void finish(int rank, const Action& action, std::vector<int>& runnable) {
    if (action.pass == Pass::W) return;
    const Output output{action.pass != Pass::F, schedule_.placement.stage(rank, action.chunk),
                        action.microbatch};
    done_[output.backward][index(output)] = true;
    int& waiting = waiting_[output.backward][index(output)];
    if (waiting >= 0) runnable.push_back(waiting);
    waiting = -1;
  }

  [[noreturn]] void report(int rank) const {
    const Block& block = schedule_.ranks[rank][next_[rank]];
    for (const Action& action : block.actions()) {
      const auto needed = input(rank, action);
      if (!needed || done_[needed->backward][index(*needed)]) continue;
      const int owner = schedule_.placement.rank_of(needed->stage);
      const Block& stuck = schedule_.ranks[owner][next_[owner]];
      refuse(place(rank, next_[rank], action),
             std::string("deadlock: it waits for the ") + (needed->backward ? "gradient" : "activation") +
                 " of microbatch " + std::to_string(needed->microbatch) + " from virtual stage " +
                 std::to_string(needed->stage) + " on rank " + std::to_string(owner) +
                 ", which comes at or after that rank's block " + std::to_string(next_[owner]) + ", " +
                 to_string(stuck) + ", which cannot start");
    }
    refuse("rank " + std::to_string(rank), "deadlock");
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;               // by rank: the first block not yet played
  std::array<std::vector<bool>, 2> done_;  // by direction, stage, microbatch
  std::array<std::vector<int>, 2>
      waiting_;  // likewise: the rank that waits for it, or -1; only one consumes it
};

}  // namespace

void validate(const Schedule& schedule) {
  check_complete(schedule);
  Player(schedule).play();
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
