#include "stp/schedule/repetition.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "stp/base/error.h"
#include "stp/schedule/validate.h"

namespace stp {
namespace {

constexpr int kLongest = 4;  // period that is looked for: times p, in microbatches

// The same block `by` microbatches later; actions on microbatches before `least` stay.
Block moved(const Block& block, int by, int least = 0) {
  const auto move = [&](Action action) {
    if (action.microbatch >= least) action.microbatch += by;
    return action;
  };
  const auto actions = block.actions();
  return block.braided() ? Block(move(actions[0]), move(actions[1])) : Block(move(actions[0]));
}

class Ranks {
 public:
  explicit Ranks(const Schedule& schedule) : schedule_(schedule), forwards_(schedule.ranks.size()) {
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      forwards_[rank].assign(schedule.microbatches, schedule.ranks[rank].size());
      for (size_t block = 0; block < schedule.ranks[rank].size(); ++block)
        for (const Action& action : schedule.ranks[rank][block].actions())
          if (action.pass == Pass::F && action.chunk == 0) forwards_[rank][action.microbatch] = block;
    }
  }
  /// The block of a rank with F0.`microbatch`.
  [[nodiscard]] size_t at(size_t rank, int microbatch) const { return forwards_[rank][microbatch]; }
  /// How many repetitions of `period` microbatches all ranks have from microbatch `first` on, at most `most`.
  [[nodiscard]] int repetitions(int first, int period, int most) const {
    for (size_t rank = 0; rank < schedule_.ranks.size() && most > 0; ++rank) {
      const auto& blocks = schedule_.ranks[rank];
      most =
          std::min(most, (schedule_.microbatches - 1 - first) / period - 1);  // a forward is behind the last
      if (most <= 0) return 0;
      const size_t begin = at(rank, first), next = at(rank, first + period);
      if (next <= begin || next >= blocks.size()) return 0;
      const size_t length = next - begin;
      size_t same = begin;
      while (same + length < blocks.size() && same < begin + most * length &&
             blocks[same + length] == moved(blocks[same], period))
        ++same;
      most = static_cast<int>((same - begin) / length);
    }
    return most;
  }

 private:
  const Schedule& schedule_;
  std::vector<std::vector<size_t>> forwards_;
};

}  // namespace

std::optional<Shortened> shorten(const Schedule& schedule, int first) {
  const int pp = schedule.pp(), all = schedule.microbatches;
  const Ranks ranks(schedule);
  // The shortest period, then as many of them as make the repetition long enough.
  int period = 1;
  const auto count = [&] { return (std::max(pp, first / 2) + period - 1) / period; };
  while (period <= kLongest * pp && ranks.repetitions(first, period, count()) < count()) ++period;
  period *= count();
  // Each begins where the one before ends. The first and the last of them remain.
  const int left_out = ranks.repetitions(first, period, all) - 1;
  if (left_out * period < all / 2) return std::nullopt;
  Shortened made{{schedule.name, schedule.placement, all - left_out * period, {}}, left_out, first, period};
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& blocks = schedule.ranks[rank];
    const auto begin = blocks.begin(), cut = begin + ranks.at(rank, first + period);
    auto& kept = made.schedule.ranks.emplace_back(begin, cut);
    const auto repeated = begin + ranks.at(rank, first), behind = cut + left_out * (cut - repeated);
    int least = first;
    for (auto block = repeated; block < cut; ++block)
      for (const Action& action : block->actions()) least = std::min(least, action.microbatch);
    std::transform(behind, blocks.end(), std::back_inserter(kept),
                   [&](const Block& block) { return moved(block, -left_out * period, least); });
  }
  try {
    validate(made.schedule);
  } catch (const InputError&) {  // some actions come much later than others of their microbatch
    return std::nullopt;
  }
  return made;
}

}  // namespace stp
