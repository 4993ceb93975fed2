#include "stp/schedule/share_vocabulary.h"

#include <algorithm>
#include <map>
#include <vector>

#include "stp/base/error.h"
#include "stp/schedule/timing.h"

namespace stp {
namespace {

// Gives every block a time at which its inputs are there. Each rank's list in the order of these times is
// valid, whatever the order was: a block waits for what has an earlier time, on every rank.
class Sharing {
 public:
  Sharing(const Schedule& schedule, Vocabulary how)
      : schedule_(schedule),
        barriers_(how == Vocabulary::two_barriers ? 2 : 1),
        delay_(barriers_ * 3 * schedule.chunks()),
        behind_(barriers_ + 0.25),
        placed_(schedule.pp()) {}

  std::vector<std::vector<Block>> ranks() {
    const Timing timing = time_blocks(schedule_);
    for (int rank = 0; rank < schedule_.pp(); ++rank)
      for (size_t i = 0; i < timing[rank].size(); ++i) place(rank, schedule_.ranks[rank][i], timing[rank][i]);
    double first = -1;  // of all
    for (const auto& [start, microbatch] : first_stage_) {
      place_on_all(Pass::E, microbatch, first - 0.5);
      first = start;
    }
    std::vector<std::vector<Block>> ranks;
    for (std::vector<Placed>& blocks : placed_) ranks.push_back(in_order(blocks));
    return ranks;
  }

 private:
  struct Placed {
    double time;
    Block block;
    bool half;  // of a braid of a forward with a backward
  };

  static bool is_forward(const Action& action) { return action.pass == Pass::F; }

  void place(int rank, const Block& block, const BlockTime& time) {
    const auto actions = block.actions();
    const auto add = [&](const Block& part, bool half) {
      const double start = time.start + (is_forward(part.actions()[0]) ? 0 : delay_);
      placed_[rank].push_back({start, part, half});
    };
    if (block.braided() && is_forward(actions[0]) != is_forward(actions[1]))
      for (const Action& action : actions) add(action, true);
    else
      add(block, false);
    for (const Action& action : actions) place_vocabulary(rank, action, time);
  }

  // What the output of a block at an end of the pipeline is for.
  void place_vocabulary(int rank, const Action& action, const BlockTime& time) {
    const Placement& placement = schedule_.placement;
    const int stage = placement.stage(rank, action.chunk), i = action.microbatch;
    if (is_forward(action) && placement.is_first(stage)) first_stage_.emplace(time.start, i);
    if (is_forward(action) && placement.is_last(stage)) {
      place_on_all(Pass::S, i, time.end + behind_);
      if (barriers_ == 1) place_on_all(Pass::U, i, time.end + behind_ + 3);
      if (barriers_ == 2) place_on_all(Pass::T, i, time.end + behind_ + 2.5 * schedule_.chunks());
    }
    if (is_backward(action.pass) && placement.is_first(stage))
      place_on_all(Pass::G, i, time.end + delay_ + behind_);
  }
  void place_on_all(Pass pass, int microbatch, double time) {
    for (auto& blocks : placed_) blocks.push_back({time, Action{pass, 0, microbatch}, false});
  }

  // At equal times the backward comes first: it was before that forward.
  static std::vector<Block> in_order(std::vector<Placed>& placed) {
    std::ranges::stable_sort(placed, {}, &Placed::time);
    std::vector<Block> blocks;
    for (size_t i = 0; i < placed.size(); ++i) {
      const auto& [time, block, half] = placed[i];
      if (half && i > 0 && placed[i - 1].half && placed[i - 1].time == time)
        blocks.back() = {block.actions()[0], blocks.back().actions()[0]};
      else
        blocks.push_back(block);
    }
    return blocks;
  }

  const Schedule& schedule_;
  const int barriers_;
  const double delay_;  // of backwards: a rank's passes of a microbatch for each barrier
  // How far behind an output that is for all ranks its pass is: while it is on its way, and the last ranks
  // end what they are busy with. Of values that were tried these leave the least idle time. Blocks' times are
  // whole numbers, the vocabulary's are not.
  const double behind_;
  std::vector<std::vector<Placed>> placed_;  // by rank
  std::multimap<double, int> first_stage_;   // microbatches by the start of their first forward
};

}  // namespace

std::string shared_name(const std::string& order, Vocabulary how) {
  return how == Vocabulary::whole ? order : order + "+" + method_name(how);
}

Schedule share_vocabulary(Schedule schedule, Vocabulary how) {
  if (!is_single_and_whole(schedule))
    throw InputError("", "", schedule.name + " has two pipelines or shares its vocabulary already",
                     "leave vocabulary out, or use another schedule");
  schedule.ranks = Sharing(schedule, how).ranks();
  schedule.name = shared_name(schedule.name, how);
  return schedule;
}

}  // namespace stp
