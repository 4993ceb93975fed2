// The order that the search over V schedules makes of a pattern.
#pragma once

#include <optional>

#include "baselines/v_reorder.h"

namespace stp::v_grid {

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
inline Made make(const v_pattern::Pattern& pattern, int m, int limit) {
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

}  // namespace stp::v_grid
