// All orders of the smallest pipelines on the V placement, with any braids, by exhaustive search: what is
// possible. One layer a virtual stage, F = I = W = 1 a chunk. Written from docs/architecture.md, section 5
// (release: chain).
//
// An order is grown block by block. Two beginnings that have run the same passes differ, for what follows,
// only in when streams are free and outputs ready. All that follows is monotone in these times, so a
// beginning that is nowhere earlier than another, and hides no more, is dropped.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "stp/program/braid.h"
#include "stp/schedule/schedule.h"

namespace stp {

// Times are in eighths; at most three ranks and microbatches.
inline constexpr int kEighths = 8, kHalf = 4, kMost = 3;

struct Times {
  std::array<int, kMost> output{};         // by microbatch: when its last pass so far left
  std::array<int, kMost> compute{}, tp{};  // by rank: when the stream is free
  int exposed = 0;                         // so far, on all ranks

  [[nodiscard]] bool dominates(const Times& other) const {
    if (exposed > other.exposed) return false;
    for (int i = 0; i < kMost; ++i)
      if (output[i] > other.output[i] || compute[i] > other.compute[i] || tp[i] > other.tp[i]) return false;
    return true;
  }
};

// What has been run: how many of its 4p steps each microbatch has done, and the deferred W.
struct Done {
  std::array<uint8_t, kMost> steps{};
  std::array<uint8_t, 2 * kMost> deferred{};  // by 2 · rank + chunk

  bool operator<(const Done& other) const {
    return std::tie(steps, deferred) < std::tie(other.steps, other.deferred);
  }
};

struct Choice {
  Pass pass;
  int chunk, microbatch;
};

// Two forwards in a block, or two I: each hides the other's all-reduces, or, as the published trainer runs
// them, one after the other, neither does.
enum class Pairs : uint8_t { hide, do_not_hide };

class AllOrders {
 public:
  /// Orders of at most `longest` eighths and `most` exposed passes, forwards and I.
  AllOrders(int p, int m, int all_reduce, int longest, int most, Pairs pairs)
      : p_(p),
        m_(m),
        all_reduce_(all_reduce),
        longest_(longest),
        most_(most),
        pairs_(pairs),
        levels_(size_t{6} * p * m + 1) {
    levels_[0][{}].push_back({});
    for (auto& level : levels_) {
      for (const auto& [done, beginnings] : level)
        for (const Times& times : beginnings) grow(done, times);
      if (&level != &levels_.back()) level.clear();
    }
  }

  /// How long `schedule` takes by the same rules.
  [[nodiscard]] int time(const Schedule& schedule) const {
    Done done;
    Times times;
    std::vector<size_t> next(p_, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < p_; ++rank) {
        for (const auto& blocks = schedule.ranks[rank]; next[rank] < blocks.size(); ++next[rank]) {
          std::vector<Choice> block;
          for (const Action& action : blocks[next[rank]].actions()) {
            const int step = done.steps[action.microbatch];
            const bool ready = step < 4 * p_ && rank_of_step(step) == rank &&
                               chunk_of_step(step) == action.chunk &&
                               (step < 2 * p_) == (action.pass == Pass::F);
            if (ready || action.pass == Pass::W)
              block.push_back({action.pass, action.chunk, action.microbatch});
          }
          if (block.size() < blocks[next[rank]].actions().size()) break;
          run(done, times, rank, block);
          moved = true;
        }
      }
    }
    return ended(times);
  }

  /// The fewest exposed passes of any such order; -1 if there is none.
  [[nodiscard]] int fewest() const {
    int fewest = -1;
    for (const auto& [done, ends] : levels_.back())
      for (const Times& end : ends)
        if (ended(end) <= longest_ && (fewest < 0 || end.exposed < fewest)) fewest = end.exposed;
    return fewest;
  }

 private:
  [[nodiscard]] int rank_of_step(int step) const {
    const int along = step % (2 * p_);
    return along < p_ ? along : 2 * p_ - 1 - along;
  }
  [[nodiscard]] int chunk_of_step(int step) const { return step < p_ || step >= 3 * p_ ? 0 : 1; }
  [[nodiscard]] int ended(const Times& times) const {
    return std::max(std::ranges::max(times.compute), std::ranges::max(times.tp));
  }

  void grow(const Done& done, const Times& times) {
    for (int rank = 0; rank < p_; ++rank) {
      std::vector<Choice> choices;
      for (int i = 0; i < m_; ++i) {
        const int step = done.steps[i];
        if (step == 4 * p_ || rank_of_step(step) != rank) continue;
        const int chunk = chunk_of_step(step);
        if (step < 2 * p_) {
          choices.push_back({Pass::F, chunk, i});
        } else {
          choices.push_back({Pass::I, chunk, i});
          choices.push_back({Pass::B, chunk, i});
        }
      }
      for (int chunk = 0; chunk < 2; ++chunk)
        if (done.deferred[2 * rank + chunk] > 0) choices.push_back({Pass::W, chunk, -1});

      for (const Choice& first : choices) {
        offer(done, times, rank, {first});
        for (const Choice& second : choices) {
          // Of one microbatch only one step can run now, as I or as B. Two W have nothing to hide.
          if (first.microbatch != second.microbatch) offer(done, times, rank, {first, second});
        }
      }
    }
  }

  [[nodiscard]] int exposed(const std::vector<Choice>& block) const {
    const Pass pass = block[0].pass;
    if (pass != Pass::F && pass != Pass::I) return 0;
    if (block.size() == 1) return 1;
    return pairs_ == Pairs::do_not_hide && block[1].pass == pass ? 2 : 0;
  }

  void offer(Done done, Times times, int rank, const std::vector<Choice>& block) {
    run(done, times, rank, block);
    keep(done, times);
  }

  void run(Done& done, Times& times, int rank, const std::vector<Choice>& block) const {
    int& compute = times.compute[rank];
    int& tp = times.tp[rank];
    struct Chain {
      int segments, taken = 0, ready = 0;
    };
    std::vector<Chain> chains;
    for (const Choice& choice : block) {
      const bool head = rank == 0 && choice.chunk == 1;  // a segment without cost, that braids still count
      chains.push_back({head ? 3 : 2, 0, choice.pass == Pass::W ? 0 : times.output[choice.microbatch]});
      if (choice.pass == Pass::W) --done.deferred[2 * rank + choice.chunk];
      if (choice.pass == Pass::I) ++done.deferred[2 * rank + choice.chunk];
      if (choice.pass != Pass::W) ++done.steps[choice.microbatch];
    }
    times.exposed += exposed(block);

    const auto segment = [&](size_t i) {
      Chain& chain = chains[i];
      const Pass pass = block[i].pass;
      const bool head = chain.segments == 3 && chain.taken == (pass == Pass::F ? 2 : 0);
      ++chain.taken;
      compute = std::max(compute, chain.ready) + (head ? 0 : kHalf);
      if (head || pass == Pass::W) {
        chain.ready = compute;
        return;
      }
      chain.ready = tp = std::max(tp, compute) + all_reduce_;
      if (pass == Pass::B) compute += kHalf;
    };
    if (block.size() == 1) {
      while (chains[0].taken < chains[0].segments) segment(0);
    } else {
      for (const uint8_t next : static_braid(chains[0].segments, chains[1].segments)) segment(next);
    }
    for (size_t i = 0; i < block.size(); ++i)
      if (block[i].pass != Pass::W) times.output[block[i].microbatch] = chains[i].ready;
  }

  // Keeps a beginning unless it is too slow already or another one is as good.
  void keep(Done& done, Times& times) {
    if (times.exposed > most_) return;
    const int hop = 2 * (kHalf + all_reduce_);
    size_t level = 0;
    for (int rank = 0; rank < p_; ++rank) {
      const int deferred = done.deferred[2 * rank] + done.deferred[2 * rank + 1];
      int left = deferred, arrival = longest_;  // passes to run; when the next step can come, at the earliest
      for (int i = 0; i < m_; ++i) {
        int hops = -1;
        for (int step = done.steps[i]; step < 4 * p_; ++step) {
          if (rank_of_step(step) != rank) continue;
          left += step < 2 * p_ ? 1 : 2;
          if (hops < 0) hops = step - done.steps[i];
        }
        if (hops >= 0) arrival = std::min(arrival, times.output[i] + hops * hop);
      }
      level += static_cast<size_t>(6 * m_ - left);
      if (left == 0) continue;
      // Nothing but W can run before the next step comes.
      if (deferred == 0) times.compute[rank] = std::max(times.compute[rank], arrival);
      times.tp[rank] = std::max(times.tp[rank], times.compute[rank] + kHalf);
      const int W_done = times.compute[rank] + deferred * 2 * kHalf;
      if (left > deferred && std::max(W_done, arrival) + (left - deferred) * 2 * kHalf > longest_) return;
      if (W_done > longest_) return;
    }
    for (int i = 0; i < m_; ++i) {
      const int steps = done.steps[i];
      if (steps == 4 * p_) {
        times.output[i] = 0;  // no step waits for it any more
        continue;
      }
      times.output[i] = std::max(times.output[i], times.compute[rank_of_step(steps)]);
      if (times.output[i] + (4 * p_ - steps) * hop > longest_) return;
    }

    // Microbatches are alike: the one that is furthest comes first.
    const auto place = [&](int k) { return std::pair(-done.steps[k], times.output[k]); };
    for (int i = 1; i < m_; ++i) {
      for (int k = i; k > 0 && place(k) < place(k - 1); --k) {
        std::swap(done.steps[k], done.steps[k - 1]);
        std::swap(times.output[k], times.output[k - 1]);
      }
    }

    auto& beginnings = levels_[level][done];
    for (const Times& other : beginnings)
      if (other.dominates(times)) return;
    std::erase_if(beginnings, [&](const Times& other) { return times.dominates(other); });
    beginnings.push_back(times);
  }

  int p_, m_, all_reduce_, longest_, most_;
  Pairs pairs_;
  std::vector<std::map<Done, std::vector<Times>>> levels_;  // by passes run
};

}  // namespace stp
