// V schedules for any memory limit (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024,
// appendix A): the best of all patterns of six slots that stay within the limit. Any p and m. `memory_limit`
// counts the activations of a chunk that a rank holds until W; more than 2p are not used. 1F1B-V, V-Half,
// V-Min and ZB-V are made in other ways.
#include <bit>
#include <limits>
#include <optional>

#include "baselines/v_grid.h"
#include "stp/base/error.h"

namespace stp {
namespace v_grid {
namespace {

// 1. The repeated pattern becomes shorter ("repeating, squeezing, reordering" in the paper): its warm-up and
// its cool-down get the shape that they have in ZB-V, scaled to the peak.

// Every rank keeps its order, and each step comes as early as it can.
void squeeze(Grid& grid, int m) {
  ListScheduler state(static_cast<int>(grid.size()), m);
  Grid squeezed(grid.size());
  for (Row& row : grid) std::erase(row, kIdle);
  state.follow(order_of(grid), PassCosts{}, [&](int r, size_t position, double input) {
    squeezed[r].resize(static_cast<size_t>(std::max(input, state.free(r))), kIdle);
    squeezed[r].push_back(grid[r][position]);
    return true;
  });
  grid = std::move(squeezed);
}

// Before a rank's first I0: forwards up to the peak, first down the V, then of both chunks in turn. Then, of
// what was there, I1, W and a forward in turn.
void reorder_warm_up(Grid& grid) {
  const int p = static_cast<int>(grid.size()), peak = std::min(peak_of(grid), 2 * p);
  for (int r = 0; r < p; ++r) {
    const auto end = std::ranges::find(grid[r], kI0);
    Counts left{};
    for (auto cell = grid[r].begin(); cell != end; ++cell)
      if (*cell != kIdle) ++left[*cell];
    Row row;
    const auto put = [&](uint8_t cell) {
      if (left[cell] == 0) return false;
      --left[cell];
      row.push_back(cell);
      return true;
    };
    int F1 = std::min(r + 1, peak / 2), F0 = peak - F1;
    const int down = 2 * (p - 1 - r);
    for (int i = 0; i < down + r + 1; ++i) {
      if (F0 > 0 && put(kF0)) --F0;
      if (i >= down && F1 > 0 && put(kF1)) --F1;
    }
    while (std::ranges::any_of(left, [](int count) { return count > 0; })) {
      put(kI1);
      put(kW1);
      if (!put(kF1)) put(kF0);
    }
    row.insert(row.end(), end, grid[r].end());
    grid[r] = std::move(row);
  }
}

// Leaves out the microbatches from m on. As many W as `peak` has memory for then wait until the end.
void leave_out(Grid& grid, int m, int peak) {
  for (Row& row : grid) {
    Counts seen{};
    std::erase_if(row, [&](uint8_t cell) { return cell == kIdle || seen[cell]++ >= m; });
    int spare = peak - peak_of(row);
    Row waiting;
    std::erase_if(row, [&](uint8_t cell) {
      if (!is_weight(cell) || spare-- <= 0) return false;
      waiting.push_back(cell);
      return true;
    });
    row.insert(row.end(), waiting.begin(), waiting.end());
  }
}

// Puts W behind the last one of the row into what is idle, chunk 1 first.
void append_weights(Row& row) {
  const auto from = std::find_if(row.rbegin(), row.rend(), is_weight).base() - row.begin();
  std::array<int, 2> open{};  // W of chunk 1 and of chunk 0
  for (int at = 0; at < static_cast<int>(row.size()) || open[0] + open[1] > 0; ++at) {
    if (at == static_cast<int>(row.size())) row.push_back(kIdle);
    uint8_t& cell = row[at];
    if (cell == kI1 || cell == kI0) ++open[cell - kI1];
    if (is_weight(cell)) --open[cell - kW1];
    if (cell != kIdle || at < from || open[0] + open[1] <= 0) continue;
    cell = open[0] > 0 ? kW1 : kW0;
    --open[cell - kW1];
  }
}

// From the last F1 of rank 0 on, the last I of both chunks run as tightly as they can, and W in what is idle
// between them. Returns false where there is no room for that.
bool reorder_cool_down(Grid& grid, int m) {
  const int p = static_cast<int>(grid.size()), peak = peak_of(grid);
  const int most_I0 = std::min((peak + 1) / 2, m), most_I1 = std::min(peak - most_I0, m);
  const auto last_F1 = std::ranges::find(grid[0].rbegin(), grid[0].rend(), kF1).base() - grid[0].begin() - 1;
  for (int r = 0; r < p; ++r) {
    Row& row = grid[r];
    Counts taken{};
    const auto take = [&](uint8_t& cell) {
      ++taken[cell];
      cell = kIdle;
    };
    for (size_t at = row.size(); at-- > 0;)
      if ((row[at] == kI1 && taken[kI1] < std::min(r + 1, most_I1)) ||
          (row[at] == kI0 && taken[kI0] < most_I0))
        take(row[at]);
    for (size_t at = row.size(); at-- > 0;) {
      if (taken[kW1] >= taken[kI1] && taken[kW0] >= taken[kI0] && taken[kW1] + taken[kW0] >= peak) break;
      if (is_weight(row[at])) take(row[at]);
    }
    const auto place = [&](uint8_t cell, int last) {  // every other slot, up to the last
      row.resize(std::max<size_t>(row.size(), last + 1), kIdle);
      for (int at = last; taken[cell]-- > 0; at -= 2) {
        if (at < 0 || row[at] != kIdle) return false;
        row[at] = cell;
      }
      return true;
    };
    const int start = static_cast<int>(last_F1);
    if (!place(kI0, start - r + 2 * p) || !place(kI1, start + 1 + r)) return false;
    append_weights(row);
  }
  return true;
}

// 2. The order that the search makes of a pattern.

// Every idle slot takes the first later step of its rank that is ready by then and does not raise the peak.
class Filler {
 public:
  Filler(Grid& grid, int m)
      : grid_(grid), p_(static_cast<int>(grid.size())), peak_(peak_of(grid)), ranks_(grid.size()) {
    for (Rank& rank : ranks_) rank.at.fill(std::vector<int>(m, kNotYet));
    make_rows_equally_long(grid);
  }

  void run() {
    for (int at = 0; at < static_cast<int>(grid_[0].size()); ++at)
      for (int r = 0; r < p_; ++r) {
        if (grid_[r][at] == kIdle) fill(r, at);
        const uint8_t cell = grid_[r][at];
        if (cell == kIdle) continue;
        Rank& rank = ranks_[r];
        rank.at[cell][rank.done[cell]++] = at;
        rank.alive += memory_of(cell);
      }
  }

 private:
  static constexpr int kNotYet = 1 << 30;
  struct Rank {
    std::array<std::vector<int>, kIdle> at;  // by kind of cell and microbatch: its slot
    Counts done{};
    int alive = 0;
  };

  // Whether the input of the next `cell` of rank r is there at slot `at`.
  [[nodiscard]] bool ready(int r, uint8_t cell, int at) const {
    const int microbatch = ranks_[r].done[cell];
    const auto before = [&](int rank, Step step) { return ranks_[rank].at[step][microbatch] < at; };
    if (is_weight(cell)) return before(r, cell == kW1 ? kI1 : kI0);
    if (r == 0 && cell == kF0) return true;
    const auto [rank, step] = input_of(p_, r, static_cast<Step>(cell));
    return before(rank, step);
  }

  void fill(int r, int at) {
    Row& row = grid_[r];
    std::array<bool, kIdle + 1> seen{};
    int kinds = 0, alive = ranks_[r].alive, most = alive;
    for (size_t later = at + 1; later < row.size() && kinds < kIdle; ++later) {
      const uint8_t cell = row[later];
      const int most_before = most;
      most = std::max(most, alive += memory_of(cell));
      if (cell == kIdle || std::exchange(seen[cell], true)) continue;
      ++kinds;
      if ((cell <= kF1 && most_before >= peak_) || !ready(r, cell, at)) continue;
      std::swap(row[at], row[later]);
      return;
    }
  }

  Grid& grid_;
  const int p_, peak_;
  std::vector<Rank> ranks_;
};

// What becomes of a pattern: its peak and, if that is within the limit, its order.
struct Made {
  int peak;
  std::optional<StepOrder> order;
};

// The pattern is repeated for at least 2p microbatches; those that do not exist are left out behind the
// warm-up.
Made make(const v_pattern::Pattern& pattern, int m, int limit) {
  const int p = static_cast<int>(pattern.size()), many = std::max(m, 2 * p);
  Grid grid = repeat(pattern, many);
  const int repeated_peak = peak_of(grid);
  if (repeated_peak > (m == many ? limit : 2 * p)) return {repeated_peak, {}};
  reorder_warm_up(grid);
  if (peak_of(grid) > repeated_peak) return {repeated_peak, {}};
  if (m < many) leave_out(grid, m, m <= p && 2 * m <= limit ? peak_of(grid) : 0);
  squeeze(grid, m);
  const int peak = peak_of(grid);
  if (peak > limit || !reorder_cool_down(grid, m)) return {peak, {}};
  squeeze(grid, m);
  Filler(grid, m).run();
  if (peak_of(grid) > peak) return {peak, {}};
  return {peak, order_of(grid)};
}

}  // namespace
}  // namespace v_grid

namespace {

using v_pattern::kPeriod;
using v_pattern::Pattern;

// 3. The search over all patterns.

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
  const int limit = request.options.memory_limit == 0 ? 2 * p : std::min(request.options.memory_limit, 2 * p);
  const PatternSearch found(request, limit);
  if (found.pattern.empty())
    throw InputError("", "memory_limit",
                     "v-search has no pattern for " + std::to_string(p) + " ranks that holds " +
                         std::to_string(limit) + " activations at most",
                     "allow " + std::to_string(found.least_peak) + " or more, or leave it out for 2p");
  const bool all = found.order[0].size() == size_t{6} * m;
  return schedule_of(all ? found.order : v_grid::make(found.pattern, m, limit).order.value(), m);
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
