// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2024), in the order of its authors' quick start, a
// change to Megatron-LM's 1F1B: as many microbatches in flight as 1F1B, but rank r splits a backward where a
// rank waits for it, and puts off r weight gradients, which fill its cool-down. Any m.
#include <algorithm>

#include "stp/schedule/generator.h"

namespace stp {
namespace {

std::vector<Block> zb_h1_rank(int p, int m, int r) {
  std::vector<Block> blocks;
  const auto run = [&](Pass pass, int microbatch) { blocks.emplace_back(Action{pass, 0, microbatch}); };
  int split = 0, weights = 0;  // backwards split so far, and W done for them
  std::vector<int> microbatches;
  const auto backward = [&](int microbatch, bool is_split) {
    run(is_split ? Pass::I : Pass::B, microbatch);
    if (!is_split) return;
    microbatches.push_back(microbatch);
    ++split;
  };
  const auto weight_gradient = [&] { run(Pass::W, microbatches[weights++]); };
  const int warm_up = std::min(p - 1 - r, m);

  // 1. Warm-up: that of 1F1B.
  for (int i = 0; i < warm_up; ++i) run(Pass::F, i);

  // 2. Steady state: one forward, one backward. The first r backwards leave their W for the cool-down, and
  // the last is split so that I leaves early. Rank 0 has nobody to hurry for.
  for (int i = 0; i < m - warm_up; ++i) {
    const bool last = i == m - warm_up - 1;
    run(Pass::F, warm_up + i);
    backward(i, r > 0 && (i < r || last));
    if (last && i >= r && r > 0) weight_gradient();
  }

  // 3. Cool-down: once r weight gradients are put off, the oldest one fills the wait for the next I.
  for (int i = m - warm_up; i < m; ++i) {
    backward(i, r > 0);
    if (i >= r && r > 0) weight_gradient();
  }

  // 4. The weight gradients that are left.
  while (weights < split) weight_gradient();
  return blocks;
}

Schedule make_zb_h1(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  Schedule schedule{"zb-h1", Placement::loop(p, 1), m, {}};
  for (int r = 0; r < p; ++r) schedule.ranks.push_back(zb_h1_rank(p, m, r));
  return schedule;
}

}  // namespace

extern const Generator schedule_zb_h1 = {
    "zb-h1", "1F1B that puts W off to its cool-down (Zero Bubble, 2024)", 1, false, false, make_zb_h1};

}  // namespace stp
