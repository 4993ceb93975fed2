#include "stp/schedule/validate.h"

#include <algorithm>
#include <bitset>
#include <optional>

#include "stp/base/error.h"
#include "stp/schedule/timing.h"
#include "stp/schedule/vocabulary.h"

namespace stp {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& why,
                         const std::string& remedy = "correct the order") {
  throw InputError("", where, why, remedy);
}

bool has_action(const std::vector<Block>& blocks, const Action& action) {
  return std::ranges::any_of(blocks, [&](const Block& block) {
    return std::ranges::find(block.actions(), action) != block.actions().end();
  });
}

// By chunk and microbatch of a rank, the passes seen.
using Seen = std::vector<std::bitset<kPasses>>;

void check_nothing_missing(const Schedule& schedule, Vocabulary vocabulary, int rank, const Seen& seen,
                           const PlaceOfAction& place) {
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      const auto& passes = seen[static_cast<size_t>(chunk) * schedule.microbatches + microbatch];
      const auto missing = [&](Pass pass) {
        refuse(place(rank, kNoBlock, {pass, static_cast<int16_t>(chunk), microbatch}), "is missing",
               "add it: there are " + std::to_string(schedule.microbatches) +
                   " microbatches, and each needs F and B, or F, I and W, on every chunk");
      };
      if (!passes[static_cast<int>(Pass::F)]) missing(Pass::F);
      if (chunk == 0 && vocabulary != Vocabulary::whole)
        for (const Pass pass :
             {Pass::E, Pass::S, vocabulary == Vocabulary::one_barrier ? Pass::U : Pass::T, Pass::G})
          if (!passes[static_cast<int>(pass)]) missing(pass);
      if (passes[static_cast<int>(Pass::B)]) continue;
      if (!passes[static_cast<int>(Pass::I)]) missing(Pass::B);
      if (!passes[static_cast<int>(Pass::W)]) missing(Pass::W);
    }
  }
}

// Each rank alone: ranges, counts, W after I.
void check_complete(const Schedule& schedule, const PlaceOfAction& place) {
  const Vocabulary vocabulary = vocabulary_of(schedule);
  const int v = schedule.chunks(), m = schedule.microbatches;
  if (static_cast<int>(schedule.ranks.size()) != schedule.pp())
    refuse("ranks", "there are " + std::to_string(schedule.ranks.size()) + " lists for " +
                        std::to_string(schedule.pp()) + " ranks");
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    Seen seen(static_cast<size_t>(v) * m);
    for (size_t position = 0; position < schedule.ranks[rank].size(); ++position) {
      const Block& block = schedule.ranks[rank][position];
      if (block.actions().empty()) refuse("rank " + std::to_string(rank), "has an empty block");
      for (const Action& action : block.actions()) {
        const auto refuse_here = [&](const std::string& why,
                                     const std::string& remedy = "correct the order") {
          refuse(place(rank, position, action), why, remedy);
        };
        if (action.chunk < 0 || action.chunk >= v)
          refuse_here("there is no chunk " + std::to_string(action.chunk) + ", a rank has " +
                      std::to_string(v));
        if (action.microbatch < 0 || action.microbatch >= m)
          refuse_here("there is no microbatch " + std::to_string(action.microbatch) + ", there are " +
                      std::to_string(m));
        auto& passes = seen[static_cast<size_t>(action.chunk) * m + action.microbatch];
        const auto has = [&](Pass pass) { return passes[static_cast<size_t>(pass)]; };
        if (has(action.pass)) refuse_here("appears a second time", "remove one of them");
        if (action.pass == Pass::B && (has(Pass::I) || has(Pass::W)))
          refuse_here("is a full backward, but its I or W is there too", "write B alone, or I and W");
        if ((action.pass == Pass::I || action.pass == Pass::W) && has(Pass::B))
          refuse_here("follows a full backward, which includes it",
                      "write B alone, or I and W (torch up to 2.5 wrote B for what is I today)");
        const auto follow = [&](Pass pass, const std::string& name) {
          const Action before{pass, action.chunk, action.microbatch};
          if (has(pass)) return;
          if (has_action(schedule.ranks[rank], before)) refuse_here("precedes its " + name, "move it after");
          refuse(place(rank, kNoBlock, before), "is missing",
                 "add it before " + place(rank, position, action) + ", or correct that");
        };
        if (is_of_vocabulary(action.pass)) {
          if (schedule.placement.pipelines() > 1)
            refuse_here("is of the vocabulary, which two pipelines do not share",
                        "remove the vocabulary's passes, or use another placement");
          if (vocabulary == Vocabulary::whole)
            refuse_here("is of the vocabulary, and rank 0 has no such pass");
          if (action.chunk != 0)
            refuse_here("is of no chunk: the vocabulary's passes are written with chunk 0");
          if (block.braided()) refuse_here("is of the vocabulary, whose passes are not braided");
          if (action.pass == (vocabulary == Vocabulary::one_barrier ? Pass::T : Pass::U))
            refuse_here("stands beside passes of the other kind: an order has T or U throughout");
          if (action.pass == Pass::T || action.pass == Pass::U) follow(Pass::S, "S");
          if (action.pass == Pass::G) follow(Pass::E, "E");
        } else if (action.pass != Pass::F) {
          follow(Pass::F, "F");
        }
        if (action.pass == Pass::W) follow(Pass::I, "I");
        passes.set(static_cast<size_t>(action.pass));
      }
      if (block.braided()) {
        const Action &a = block.actions()[0], &b = block.actions()[1];
        if (a.chunk == b.chunk && a.microbatch == b.microbatch)
          refuse(place(rank, position, b), "is braided with a pass of its microbatch, on which it depends",
                 "braid passes of different microbatches");
      }
    }
    check_nothing_missing(schedule, vocabulary, rank, seen, place);
  }
}

// A block that cannot start, and what one of its actions waits for.
struct Wait {
  int rank;
  size_t block;
  Action action;
  int owner;  // the rank of what it waits for, and the place there
  size_t block_there;
  Action awaited;
};

// Returns the block that the first block of `rank` that never starts waits for. It never starts either.
std::optional<Wait> wait_of(const Schedule& schedule, const std::vector<size_t>& started, int rank) {
  const size_t stuck = started[rank];
  if (stuck == schedule.ranks[rank].size()) return {};
  const PassInputs inputs(schedule);
  for (const Action& action : schedule.ranks[rank][stuck].actions()) {
    const int needed = inputs.of(rank, action).needed;
    if (needed == PassInputs::kNothing) continue;
    for (int owner = 0; owner < schedule.pp(); ++owner)
      for (size_t block = started[owner]; block < schedule.ranks[owner].size(); ++block)
        for (const Action& other : schedule.ranks[owner][block].actions())
          if (other.microbatch == action.microbatch &&
              (inputs.of(owner, other).made == needed ||
               (inputs.summed_by(needed) == owner && block > started[owner] &&
                inputs.of(owner, other).needed == needed)))
            return Wait{rank, stuck, action, owner, block, other};
  }
  return {};
}

// Follows the waits from one that never ends: each rank has one, so they lead into a cycle, which is
// returned.
std::vector<Wait> cycle_from(Wait wait, const Schedule& schedule, const std::vector<size_t>& started) {
  std::vector<Wait> waits;
  std::vector<bool> seen(schedule.pp());
  while (!seen[wait.rank]) {
    seen[wait.rank] = true;
    waits.push_back(wait);
    wait = *wait_of(schedule, started, wait.owner);
  }
  const auto first = std::ranges::find_if(waits, [&](const Wait& other) { return other.rank == wait.rank; });
  waits.erase(waits.begin(), first);
  return waits;
}

// All ranks together: whether every block can start.
void check_deadlock(const Schedule& schedule, const PlaceOfAction& place) {
  const std::vector<size_t> started = startable_blocks(schedule);
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const auto stuck = wait_of(schedule, started, rank);
    if (!stuck) continue;
    const std::vector<Wait> cycle = cycle_from(*stuck, schedule, started);
    std::string text = "deadlock: it waits for ";
    for (size_t i = 0; i < cycle.size(); ++i) {
      const Wait &wait = cycle[i], &next = cycle[(i + 1) % cycle.size()];
      text += place(wait.owner, wait.block_there, wait.awaited);
      if (wait.awaited != next.action)
        text += (wait.block_there == next.block ? ", braided with " : ", which comes after ") +
                place(next.rank, next.block, next.action);
      text += i + 1 < cycle.size() ? ", which waits for " : ", which closes the cycle";
    }
    refuse(place(cycle[0].rank, cycle[0].block, cycle[0].action), text);
  }
}

}  // namespace

std::string in_block(size_t block) { return block == kNoBlock ? "" : ", block " + std::to_string(block); }

std::string place_in_schedule(int rank, size_t block, const Action& action) {
  return "rank " + std::to_string(rank) + in_block(block) + ", " + to_string(action);
}

void validate(const Schedule& schedule, const PlaceOfAction& place) {
  check_complete(schedule, place);
  check_deadlock(schedule, place);
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
