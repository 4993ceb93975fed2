// How the search over V schedules shortens a repeated pattern ("repeating, squeezing, reordering" in Qi et
// al., "Pipeline Parallelism with Controllable Memory", 2024): its warm-up and its cool-down get the shape
// that they have in ZB-V, scaled to the peak.
#pragma once

#include "baselines/v_grid.h"

namespace stp::v_grid {

// Every rank keeps its order, and each step comes as early as it can.
inline void squeeze(Grid& grid, int m) {
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
inline void reorder_warm_up(Grid& grid) {
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
inline void leave_out(Grid& grid, int m, int peak) {
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
inline void append_weights(Row& row) {
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
inline bool reorder_cool_down(Grid& grid, int m) {
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

}  // namespace stp::v_grid
