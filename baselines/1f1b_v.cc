// 1F1B-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): about two thirds of 1F1B's
// memory on every rank, with full backwards. A pattern of six slots is repeated for all microbatches; then,
// slot by slot, each step moves to the earliest slots that are idle, behind its input, without raising the
// peak. Any m and p.
#include "baselines/v_grid.h"
#include "stp/schedule/merge_backward.h"

namespace stp {
namespace {

// A backward takes two slots. After every third rank on its way, three slots are left free for forwards, so
// that no two steps of a rank meet.
v_pattern::Pattern pattern_of(int p) {
  const int start = 2 * p + (p % 3 == 0 ? 3 : 0), shift = (2 * p + 1) % 3;
  const auto backward = [&](int hop) { return start + 2 * hop + (shift + hop) / 3 * 3; };
  v_pattern::Pattern pattern;
  for (int r = 0; r < p; ++r) pattern.push_back({r, 2 * p - 1 - r, backward(r), backward(2 * p - 1 - r)});
  return pattern;
}

class Compactor {
 public:
  Compactor(v_grid::Grid& grid, int m)
      : grid_(grid), p_(static_cast<int>(grid.size())), peak_(v_grid::peak_of(grid)), ranks_(p_) {
    v_grid::make_rows_equally_long(grid);
    for (int r = 0; r < p_; ++r) {
      ranks_[r].free_at.fill(std::vector<int>(m, 0));
      int alive = 0;
      for (const uint8_t cell : grid[r]) ranks_[r].alive.push_back(alive += v_grid::memory_of(cell));
    }
  }
  void run() {
    for (int at = 0; at < static_cast<int>(grid_[0].size()); ++at)
      for (int r = 0; r < p_; ++r)
        if (grid_[r][at] <= kI0) move(r, at, static_cast<Step>(grid_[r][at]));
  }

 private:
  struct Rank {
    std::array<std::vector<int>, 4> free_at;  // by step and microbatch: the slot behind it
    std::array<int, 4> done{};
    std::vector<int> alive;
  };

  void move(int r, int at, Step step) {
    Rank& rank = ranks_[r];
    auto& row = grid_[r];
    const int i = rank.done[step]++, size = is_forward(step) ? 1 : 2;
    int to = i == 0 ? 0 : rank.free_at[step][i - 1];
    if (r > 0 || step != kF0) {
      const auto [from, before] = v_grid::input_of(p_, r, step);
      to = std::max(to, ranks_[from].free_at[before][i]);
    }
    if (is_forward(step)) {
      int first = at;
      while (first > to && rank.alive[first - 1] < peak_) --first;
      to = first;
    }
    const auto idle = [&](int slot) { return row[slot] == v_grid::kIdle; };
    while (to < at && !(idle(to) && (size == 1 || idle(to + 1)))) ++to;
    rank.free_at[step][i] = to + size;
    if (to == at) return;
    for (int k = 0; k < size; ++k) std::swap(row[to + k], row[at + k]);
    for (int slot = to + size - 1; slot < at + size - 1; ++slot)
      rank.alive[slot] += is_forward(step) ? 1 : -1;
  }

  v_grid::Grid& grid_;
  const int p_, peak_;
  std::vector<Rank> ranks_;
};

Schedule make_1f1b_v(const GeneratorRequest& request) {
  v_grid::Grid grid = v_grid::repeat(pattern_of(request.pp), request.microbatches);
  Compactor(grid, request.microbatches).run();
  return merge_backward(schedule_of(v_grid::order_of(grid), request.microbatches));
}

}  // namespace

extern const Generator schedule_1f1b_v = {
    .name = "1f1b-v",
    .summary = "about two thirds of 1F1B's memory, V placement (Controllable Memory, 2024)",
    .chunks = 2,
    .make = make_1f1b_v};

}  // namespace stp
