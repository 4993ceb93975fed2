// Schedules for tests of modules that must not depend on the baselines.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"

namespace stp {

extern const Generator schedule_stp, schedule_stp_memory;

inline Schedule stp_schedule(int pp, int microbatches, const Generator& generator = schedule_stp) {
  return make_schedule(generator, {.pp = pp, .microbatches = microbatches});
}

/// The schedule of these blocks, by rank, unchecked.
inline Schedule schedule_of(const Placement& placement, int microbatches,
                            const std::vector<std::vector<std::string>>& ranks) {
  Schedule schedule{"by hand", placement, microbatches, {}};
  for (const auto& row : ranks) {
    auto& blocks = schedule.ranks.emplace_back();
    for (const std::string& block : row) blocks.push_back(parse_block(block));
  }
  return schedule;
}

/// The same of one rank, which need not have all microbatches.
inline Schedule one_rank(const std::vector<std::string>& blocks, int chunks = 1) {
  return schedule_of(Placement::loop(1, chunks), 9, {blocks});
}

/// Passes of a rank that run alone with an exposed all-reduce. A full backward hides its own.
inline int alone(const std::vector<Block>& blocks) {
  int count = 0;
  for (const Block& block : blocks) {
    const Pass pass = block.actions()[0].pass;
    count += !block.braided() && (pass == Pass::F || pass == Pass::I);
  }
  return count;
}

/// These, and two forwards or two I of one block, which the published trainer runs one after the other.
inline int exposed(const std::vector<Block>& blocks) {
  int count = alone(blocks);
  for (const Block& block : blocks) {
    if (!block.braided()) continue;
    const Pass first = block.actions()[0].pass, second = block.actions()[1].pass;
    count += first == second && (first == Pass::F || first == Pass::I) ? 2 : 0;
  }
  return count;
}

/// The passes of each rank, in ascending order, of a full backward both that it stands for.
inline std::vector<std::vector<Action>> passes_by_rank(const Schedule& schedule) {
  std::vector<std::vector<Action>> ranks;
  for (const auto& blocks : schedule.ranks) {
    std::vector<Action>& passes = ranks.emplace_back();
    for (const Block& block : blocks)
      for (Action action : block.actions()) {
        if (action.pass == Pass::B) {
          passes.push_back({Pass::W, action.chunk, action.microbatch});
          action.pass = Pass::I;
        }
        passes.push_back(action);
      }
    std::ranges::sort(passes);
  }
  return ranks;
}

/// The sum of `count(blocks)` over all ranks.
template <typename Count>
int on_all_ranks(const Schedule& schedule, Count count) {
  int sum = 0;
  for (const auto& blocks : schedule.ranks) sum += count(blocks);
  return sum;
}

/// The same, validated.
inline Schedule by_hand(const Placement& placement, int microbatches,
                        const std::vector<std::vector<std::string>>& ranks) {
  Schedule schedule = schedule_of(placement, microbatches, ranks);
  validate(schedule);
  return schedule;
}

/// One forward, one backward, with one chunk a rank.
inline Schedule plain_1f1b(int p, int m) {
  Schedule schedule{"1f1b", Placement::loop(p, 1), m, {}};
  for (int rank = 0; rank < p; ++rank) {
    auto& blocks = schedule.ranks.emplace_back();
    for (int i = 0; i < m + p - 1 - rank; ++i) {
      if (i < m) blocks.emplace_back(Action{Pass::F, 0, i});
      if (i >= p - 1 - rank) blocks.emplace_back(Action{Pass::B, 0, i - (p - 1 - rank)});
    }
  }
  validate(schedule);
  return schedule;
}

/// A random valid order: built block by block from the ready passes, fused or split, braided or not.
inline Schedule random_schedule(std::mt19937& random, const Placement& placement, int microbatches) {
  Schedule schedule{"random", placement, microbatches, {}};
  schedule.ranks.resize(placement.ranks());
  const int stages = placement.stages();
  std::vector<std::vector<Action>> ready(placement.ranks());
  const auto offer = [&](Pass pass, int stage, int microbatch) {
    ready[placement.rank_of(stage)].push_back(
        {pass, static_cast<int16_t>(placement.chunk_of(stage)), microbatch});
  };
  const auto offer_backward = [&](int stage, int microbatch) {
    offer(random() % 2 ? Pass::B : Pass::I, stage, microbatch);
  };
  for (int m = 0; m < microbatches; ++m) offer(Pass::F, 0, m);
  for (size_t left = 1; left > 0;) {
    const int rank = static_cast<int>(random() % placement.ranks());
    auto& here = ready[rank];
    std::vector<Action> block;
    for (size_t wanted = 1 + random() % 2; wanted > 0 && !here.empty(); --wanted) {
      std::swap(here[random() % here.size()], here.back());
      block.push_back(here.back());
      here.pop_back();
    }
    if (block.size() == 1) schedule.ranks[rank].emplace_back(block[0]);
    if (block.size() == 2) schedule.ranks[rank].emplace_back(block[0], block[1]);
    for (const Action& action : block) {
      const int stage = placement.stage(rank, action.chunk), m = action.microbatch;
      if (action.pass == Pass::I) offer(Pass::W, stage, m);
      if (action.pass == Pass::F && stage + 1 < stages) offer(Pass::F, stage + 1, m);
      if (action.pass == Pass::F && stage + 1 == stages) offer_backward(stage, m);
      if (is_backward(action.pass) && stage > 0) offer_backward(stage - 1, m);
    }
    left = 0;
    for (const auto& actions : ready) left += actions.size();
  }
  validate(schedule);
  return schedule;
}

}  // namespace stp
