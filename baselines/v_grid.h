// Orders on the V placement as grids of slots, a row for each rank, in which all passes take one slot: what
// 1F1B-V and the search over V schedules share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "baselines/v_pattern.h"

namespace stp::v_grid {

// A slot: a Step that is no W, W of chunk 1 or of chunk 0, or nothing.
enum Cell : uint8_t { kW1 = kW, kW0, kIdle };
using Row = std::vector<uint8_t>;
using Grid = std::vector<Row>;
using Counts = std::array<int, kIdle>;  // a number for each kind of cell

constexpr bool is_weight(uint8_t cell) { return cell == kW1 || cell == kW0; }
constexpr int memory_of(uint8_t cell) { return cell <= kF1 ? 1 : is_weight(cell) ? -1 : 0; }

// Of a row of cells or of steps.
template <typename Cell>
int peak_of(const std::vector<Cell>& row) {
  int alive = 0, peak = 0;
  for (const uint8_t cell : row) peak = std::max(peak, alive += memory_of(cell));
  return peak;
}
inline int peak_of(const Grid& grid) {
  int peak = 0;
  for (const Row& row : grid) peak = std::max(peak, peak_of(row));
  return peak;
}

inline void make_rows_equally_long(Grid& grid) {
  size_t length = 0;
  for (const Row& row : grid) length = std::max(length, row.size());
  for (Row& row : grid) row.resize(length, kIdle);
}

inline StepOrder order_of(const Grid& grid) {
  StepOrder order(grid.size());
  for (size_t r = 0; r < grid.size(); ++r)
    for (const uint8_t cell : grid[r])
      if (cell != kIdle) order[r].push_back(is_weight(cell) ? kW : static_cast<Step>(cell));
  return order;
}

// The rank and step whose output the step of rank r needs. Not for F0 of rank 0, and for no W.
inline std::pair<int, Step> input_of(int p, int r, Step step) {
  const int hop = v_hop(p, r, step) - 1, way = hop / p;
  return {way % 2 == 0 ? hop % p : p - 1 - hop % p, static_cast<Step>(way)};
}

// The pattern, m times: W of chunk 1 in the first free slot behind I1, then W of chunk 0 behind I0.
inline Grid repeat(const v_pattern::Pattern& pattern, int m) {
  Grid grid;
  for (const v_pattern::Counts& steps : pattern) {
    Counts slots{steps[kF0], steps[kF1], steps[kI1], steps[kI0]};
    unsigned taken = 0;
    const auto bit = [](int slot) { return 1U << slot % v_pattern::kPeriod; };
    for (const int slot : steps) taken |= bit(slot);
    for (const auto& [weight, after] : {std::pair{kW1, kI1}, {kW0, kI0}}) {
      slots[weight] = slots[after];
      while ((taken & bit(slots[weight])) != 0) ++slots[weight];
      taken |= bit(slots[weight]);
    }
    Row row(*std::ranges::max_element(slots) + v_pattern::kPeriod * (m - 1) + 1, kIdle);
    for (uint8_t cell = 0; cell < kIdle; ++cell)
      for (int i = 0; i < m; ++i) row[slots[cell] + v_pattern::kPeriod * i] = cell;
    grid.push_back(std::move(row));
  }
  return grid;
}

}  // namespace stp::v_grid
