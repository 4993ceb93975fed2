// V schedules for any memory limit (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024,
// appendix A): the best of all patterns of six slots that stay within the limit. Any p and m. `memory_limit`
// counts the activations of a chunk that a rank holds until W; more than 2p are not used. 1F1B-V, V-Half,
// V-Min and ZB-V are made in other ways.
#include <bit>
#include <limits>
#include <optional>

#include "baselines/v_order.h"
#include "stp/base/error.h"

namespace stp {
namespace {

using v_pattern::kPeriod;
using v_pattern::Pattern;

// What a pattern is made of: the slots of rank 0 from F0 on (modulo the period), and the slots from a rank to
// the next on the way down, for the first ranks and for the others. On the way up it is one slot a rank.
struct BuildingBlock {
  int F1, I1, I0;
  int slow, fast, slow_ranks;
};

// The slots of all ranks, or nothing where two steps of a rank meet.
std::optional<Pattern> pattern_of(const BuildingBlock& block, int p) {
  Pattern pattern(p);
  const auto next = [](int slot, int same_as) {  // the first one behind `slot`
    return slot + 1 + ((same_as - slot - 1) % kPeriod + kPeriod) % kPeriod;
  };
  const auto down = [&](Step step, int slot) {
    for (int r = 0; r < p; slot += r++ < block.slow_ranks ? block.slow : block.fast) pattern[r][step] = slot;
  };
  const auto up = [&](Step step, int of_rank_0) {
    const int slot = next(pattern[p - 1][step - 1], of_rank_0 - (p - 1));
    for (int r = 0; r < p; ++r) pattern[r][step] = slot + p - 1 - r;
  };
  down(kF0, 0);
  up(kF1, block.F1);
  down(kI1, next(pattern[0][kF1], block.I1));
  up(kI0, block.I0);
  for (const v_pattern::Counts& slots : pattern) {
    unsigned taken = 0;
    for (const int slot : slots) taken |= 1U << slot % kPeriod;
    if (std::popcount(taken) < 4) return std::nullopt;
  }
  return pattern;
}

// The longest time from a rank's first step to its last.
double longest_span(const StepOrder& order, int m, const PassCosts& costs) {
  ListScheduler state(static_cast<int>(order.size()), m, costs.p2p);
  std::vector<double> begun(order.size());  // the end of the first step
  state.follow(order, costs, [&](int r, size_t position, double input) {
    if (position == 0) begun[r] = input + costs.F;
    return true;
  });
  double longest = 0;
  for (size_t r = 0; r < order.size(); ++r)
    longest = std::max(longest, state.free(static_cast<int>(r)) - begun[r] + costs.F);
  return longest;
}

class PatternSearch {
 public:
  // Which pattern is best hardly depends on m once that is large. From 46 ranks on not every
  // place of the change from slow to fast is tried: there are enough others.
  PatternSearch(const GeneratorRequest& request, int limit)
      : p_(request.pp),
        m_(std::min(request.microbatches, std::max(2 * p_, 1024 / p_))),
        limit_(limit),
        stride_(std::max(1, p_ * p_ / 1024)),
        costs_(request.costs) {
    for (int F1 = 1; F1 < kPeriod; ++F1)
      for (int I1 = 1; I1 < kPeriod; ++I1)
        for (int I0 = 1; I0 < kPeriod; ++I0)
          for (int slow = 1; slow < kPeriod; ++slow)
            for (int fast = 1; fast <= slow; ++fast)
              if (F1 != I1 && I1 != I0 && F1 != I0) try_ranks({F1, I1, I0, slow, fast, 1});
  }

  Pattern pattern;  // empty if none is within the limit
  StepOrder order;  // for a few microbatches
  int least_peak = std::numeric_limits<int>::max();

 private:
  void try_ranks(BuildingBlock block) {
    const int end = block.fast == block.slow ? 2 : std::max(p_, 2);
    for (; block.slow_ranks < end; block.slow_ranks += stride_) {
      const std::optional<Pattern> found = pattern_of(block, p_);
      if (!found) continue;
      v_grid::Made made = v_grid::make(*found, m_, limit_);
      least_peak = std::min(least_peak, made.peak);
      if (made.peak > limit_) return;  // more slow ranks need more
      if (!made.order) continue;
      const double span = longest_span(*made.order, m_, costs_);
      if (span >= least_) continue;
      least_ = span;
      pattern = *found;
      order = std::move(*made.order);
    }
  }

  int p_, m_, limit_, stride_;
  PassCosts costs_;
  double least_ = kNever;
};

Schedule make_v_search(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  const int limit = request.memory_limit == 0 ? 2 * p : std::min(request.memory_limit, 2 * p);
  const PatternSearch found(request, limit);
  if (found.pattern.empty())
    throw InputError("", "memory_limit",
                     "v-search has no pattern for " + std::to_string(p) + " ranks that holds " +
                         std::to_string(limit) + " activations at most",
                     "allow " + std::to_string(found.least_peak) + " or more, or leave it out for 2p");
  const bool all = found.order[0].size() == size_t{6} * m;
  return schedule_of("v-search", all ? found.order : v_grid::make(found.pattern, m, limit).order.value(), m);
}

}  // namespace

extern const Generator schedule_v_search = {
    .name = "v-search",
    .summary = "the best V pattern within a memory limit (Controllable Memory, 2024)",
    .chunks = 2,
    .cost_aware = true,
    .takes_limit = true,
    .make = make_v_search,
    .slow = true};

}  // namespace stp
