// With few microbatches there is no steady state: while the last forwards come down the ranks, the first
// backwards already meet them, and the order that serves best depends on both p and m. So it is found by
// playing: every rank takes the best block that it can run at once, by fixed rules, and a few numbers in
// these rules are chosen by trying them. The rules are the method's: a chunk's forward is braided with its
// backward, W is split off only where I is waited for elsewhere, and what has no such partner still shares
// its all-reduce with another pass where it can.
#include "stp/schedule/short_stp.h"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <queue>
#include <type_traits>
#include <utility>

#include "stp/schedule/pipeline_state.h"

namespace stp {
namespace {

constexpr double kEpsilon = 1e-9;
// The times that are played: F, I and W last 1 each, and a forward or I with nothing beside it its all-reduce
// longer. Blocks are atomic, so that the order does not rest on an output that leaves its block early.
constexpr double kAllReduce = 0.25;
// What is played is timed besides as it would run with one layer a chunk: two units a pass, each with its
// all-reduce, and outputs that leave as soon as they are there. Two lengths of it, since hardware differs.
constexpr std::array<double, 2> kUnitAllReduce{0.125, 0.25};

// The legs of a microbatch's way, in their order: down the ranks and up again, forward, then backward.
enum Leg : uint8_t { kF0, kF1, kB1, kB0 };
constexpr int kLegs = 4;
constexpr Leg forward_of(int chunk) { return chunk == 0 ? kF0 : kF1; }
constexpr Leg backward_of(int chunk) { return chunk == 0 ? kB0 : kB1; }

// What is chosen by trying.
struct Policy {
  // How many W rank r keeps in hand: reserve + slope · r; as long as there are fewer, backwards of the chunk
  // are split.
  double reserve_0 = 0, slope_0 = 0, reserve_1 = 1, slope_1 = 1;
  double last_split = 0;        // so many of a rank's last backwards, times r, are split in any case
  double patience = 0;          // how long a forward waits for a backward
  int pair_0 = -1, pair_1 = 2;  // from which microbatch on F0&F0 and F1&F0 are braided; -1: never
};

class Play {
 public:
  Play(int p, int m, int most_alive, const Policy& policy)
      : p_(p), m_(m), most_alive_(most_alive), policy_(policy), ranks_(p) {
    for (Rank& rank : ranks_) rank.blocks.reserve(static_cast<size_t>(5) * m);
    ranks_[0].inputs[kF0].assign(m, {});
    wake(0, 0);
    while (!events_.empty()) {
      const auto [time, r] = events_.top();
      events_.pop();
      if (ranks_[r].wake != time) continue;  // an earlier event has taken its place
      ranks_[r].wake = kNever;
      step(r, time);
    }
  }

  [[nodiscard]] double time() const { return (end_[0] + end_[1]) / 2; }
  // A price on unhidden all-reduces where they are not fewer than those of 1F1B-I, 2m on each rank. It is
  // high for passes alone, and low where two forwards or two I share a block: those do hide each other's.
  [[nodiscard]] double price() const {
    const auto too_many = [&](int count) { return std::max(0, count - 2 * m_ * p_ + 1); };
    return (too_many(alone_) > 0 ? 1 : 0) + 0.5 * too_many(alone_) + 0.05 * too_many(alone_ + paired_);
  }
  [[nodiscard]] std::vector<std::vector<Block>> take() {
    std::vector<std::vector<Block>> blocks;
    for (Rank& rank : ranks_) blocks.push_back(std::move(rank.blocks));
    return blocks;
  }

 private:
  // A moment as it is played, and as it is timed for each of kUnitAllReduce.
  struct Moment {
    double played = 0;
    std::array<double, 2> timed{};
  };
  struct Rank {
    double free = 0, wake = kNever;
    std::array<double, 2> compute{}, tp{};  // when these streams are free, as timed
    // When each microbatch's input of a leg is there, as far as known.
    std::array<std::vector<Moment>, kLegs> inputs;
    std::array<int, kLegs> done{};
    int alive = 0;
    std::vector<Action> split;  // the W of all I so far,
    size_t weights = 0;         // of which so many are done
    std::vector<Block> blocks;
  };

  [[nodiscard]] double input(int r, Leg leg) const {
    const Rank& rank = ranks_[r];
    const auto next = static_cast<size_t>(rank.done[leg]);
    return next < rank.inputs[leg].size() ? rank.inputs[leg][next].played : kNever;
  }
  [[nodiscard]] bool room(int r, int more = 1) const { return ranks_[r].alive + more <= most_alive_; }
  [[nodiscard]] int pending(int r) const {
    return static_cast<int>(ranks_[r].split.size() - ranks_[r].weights);
  }

  // Whether the next backward of `chunk` is split, as the `nth` to be split now. Nobody waits for rank 0's
  // I0.
  [[nodiscard]] bool splits(int r, int chunk, int nth = 1) const {
    if (r == 0 && chunk == 0) return false;
    const int left = 2 * m_ - ranks_[r].done[kB0] - ranks_[r].done[kB1];
    const double reserve =
        chunk == 0 ? policy_.reserve_0 + policy_.slope_0 * r : policy_.reserve_1 + policy_.slope_1 * r;
    return left <= policy_.last_split * r || pending(r) + nth <= reserve;
  }

  // What rank r runs at `now`, when it is free.
  void step(int r, double now) {
    const auto ready = [&](Leg leg) { return input(r, leg) <= now + kEpsilon; };
    const bool room_for_forward = room(r);
    const std::array<bool, 2> forwards{room_for_forward && ready(kF0), room_for_forward && ready(kF1)};
    const std::array<bool, 2> backwards{ready(kB0), ready(kB1)};

    // 1. The braid that all this is about.
    for (const int chunk : {1, 0}) {
      if (!forwards[chunk] || !backwards[chunk]) continue;
      const Action first = forward(r, chunk);
      return run(r, now, {first, backward(r, chunk, splits(r, chunk))});
    }

    // 2. A backward, since others wait for it; two I together, so that each hides the other's all-reduce.
    if (backwards[0] && backwards[1] && splits(r, 0, 2) && splits(r, 1, 2)) {
      const Action first = backward(r, 1, true);
      return run(r, now, {first, backward(r, 0, true)});
    }
    for (const int chunk : {1, 0})
      if (backwards[chunk]) return run(r, now, backward(r, chunk, splits(r, chunk)));

    // 3. A forward: rather in a braid a little later, else with a W, else with another forward, else alone.
    if (forwards[0] || forwards[1]) {
      double wait = kNever;
      for (const int chunk : {0, 1})
        if (forwards[chunk]) wait = std::min(wait, input(r, backward_of(chunk)) - now);
      if (wait <= policy_.patience + kEpsilon) {
        if (pending(r) > 0 && wait >= 1 - kEpsilon) return run(r, now, weight_gradient(r));
        return wake(r, now + wait);
      }
      const Action first = forward(r, forwards[1] ? 1 : 0);
      if (pending(r) > 0) return run(r, now, {first, weight_gradient(r)});
      if (pairs(r, first, now)) return run(r, now, {first, forward(r, 0)});
      return run(r, now, first);
    }

    // 4. W, where it fits or where its memory is needed; else sleep until the next input that is known.
    double next = kNever;
    for (const Leg leg : {kF0, kF1, kB1, kB0})
      if (input(r, leg) > now + kEpsilon) next = std::min(next, input(r, leg));
    if (pending(r) > 0 && (next >= now + 1 - kEpsilon || !room_for_forward))
      return run(r, now, weight_gradient(r));
    if (next < kNever) wake(r, next);
  }

  // Whether the next F0 is braided with the forward `first`. It makes `first` later on all ranks that follow,
  // which the first microbatches cannot afford, and an F1 that is about to come neither.
  [[nodiscard]] bool pairs(int r, const Action& first, double now) const {
    if (input(r, kF0) > now + kEpsilon || !room(r)) return false;
    const int from = first.chunk == 1 ? policy_.pair_1 : policy_.pair_0;
    return from >= 0 && first.microbatch >= from &&
           (first.chunk == 1 || input(r, kF1) > now + 1 + kAllReduce);
  }

  Action forward(int r, int chunk) {
    ++ranks_[r].alive;
    return {Pass::F, static_cast<int16_t>(chunk), ranks_[r].done[forward_of(chunk)]++};
  }
  Action backward(int r, int chunk, bool split) {
    Rank& rank = ranks_[r];
    const Action action{split ? Pass::I : Pass::B, static_cast<int16_t>(chunk),
                        rank.done[backward_of(chunk)]++};
    if (split) rank.split.push_back({Pass::W, action.chunk, action.microbatch});
    if (!split) --rank.alive;
    return action;
  }
  // The oldest one put off, of either chunk.
  Action weight_gradient(int r) {
    --ranks_[r].alive;
    return ranks_[r].split[ranks_[r].weights++];
  }

  void run(int r, double now, const Block& block) {
    Rank& rank = ranks_[r];
    rank.blocks.push_back(block);
    rank.free = now;
    for (const Action& action : block.actions()) rank.free += action.pass == Pass::B ? 2 : 1;
    const Pass first = block.actions().front().pass, last = block.actions().back().pass;
    if (first == last && (first == Pass::F || first == Pass::I)) {
      (block.braided() ? paired_ : alone_) += static_cast<int>(block.actions().size());
      if (!block.braided()) rank.free += kAllReduce;
    }

    const auto leg = [](const Action& action) {
      return action.pass == Pass::F ? forward_of(action.chunk) : backward_of(action.chunk);
    };
    std::array<Moment, 2> outputs;
    for (size_t i = 0; i < block.actions().size(); ++i) {
      const Action& action = block.actions()[i];
      outputs[i].played = rank.free;
      if (action.pass != Pass::W) outputs[i].timed = rank.inputs[leg(action)][action.microbatch].timed;
    }
    for (size_t k = 0; k < kUnitAllReduce.size(); ++k) time(rank, block, k, outputs);
    for (size_t i = 0; i < block.actions().size(); ++i)
      if (block.actions()[i].pass != Pass::W) send(r, leg(block.actions()[i]), outputs[i]);
    wake(r, rank.free);
  }

  // Times `block` with the k-th all-reduce; `chains` are its actions' inputs, then their outputs.
  void time(Rank& rank, const Block& block, size_t k, std::array<Moment, 2>& chains) {
    double &compute = rank.compute[k], &tp = rank.tp[k];
    for (int unit = 0; unit < 2; ++unit) {
      for (size_t i = 0; i < block.actions().size(); ++i) {
        double& chain = chains[i].timed[k];
        compute = std::max(compute, chain) + 0.5;
        if (block.actions()[i].pass == Pass::W) continue;
        chain = tp = std::max(tp, compute) + kUnitAllReduce[k];
        if (block.actions()[i].pass == Pass::B) compute += 0.5;
      }
    }
    end_[k] = std::max({end_[k], compute, tp});
  }

  // Hands on what `leg` on rank r has made: to a neighbour, or to itself where the V turns and at the loss.
  void send(int r, Leg leg, const Moment& output) {
    const int to = leg == kF0 || leg == kB1 ? r + 1 : r - 1;
    if (to >= 0 && to < p_) {
      ranks_[to].inputs[leg].push_back(output);
      wake(to, std::max(ranks_[to].free, output.played));
    } else if (leg != kB0) {
      ranks_[r].inputs[leg + 1].push_back(output);
    }
  }

  void wake(int r, double time) {
    if (ranks_[r].wake <= time) return;
    ranks_[r].wake = time;
    events_.emplace(time, r);
  }

  using Event = std::pair<double, int>;  // time, rank
  int p_, m_, most_alive_;
  Policy policy_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::array<double, 2> end_{};
  int alone_ = 0, paired_ = 0;  // forwards and I that stand alone, or in a block with another of their kind
};

// Tries one number of the policy after the other and keeps what is better.
class Search {
 public:
  Search(int p, int m, int most_alive, bool priced)
      : p_(p),
        m_(m),
        most_alive_(most_alive),
        priced_(priced),
        plays_left_(1 + kPlayedActions / (size_t{6} * p * m)) {
    // Where W are scarce until the cool-down, and where they are plenty.
    const int half = p / 2;
    climb({.reserve_1 = 1.0 + half, .pair_0 = 1 + p / 3});
    climb({.reserve_0 = 1, .slope_0 = 1});
  }

  /// How many policies are tried at most, so that the search is not felt.
  static size_t plays(int p, int m) { return 1 + kPlayedActions / (size_t{6} * p * m); }

  [[nodiscard]] double time() const { return best_.time; }
  [[nodiscard]] std::vector<std::vector<Block>> take() { return std::move(best_.blocks); }

 private:
  static constexpr size_t kPlayedActions = size_t{1} << 21;
  static constexpr int kSweeps = 5;

  struct Found {
    Policy policy;
    double score = kNever, time = kNever;
    std::vector<std::vector<Block>> blocks;
  };

  // Goes downhill from a starting point, as far as it comes in a few sweeps.
  void climb(const Policy& start) {
    const double p = p_;
    Found found;
    offer(found, start);
    double before = kNever;
    for (int sweep = 0; sweep < kSweeps && found.score < before; ++sweep) {
      before = found.score;
      vary(found, &Policy::reserve_1, {0, 1, 2, 3, p / 4, p / 2, p});
      vary(found, &Policy::slope_1, {0, 0.5, 1, 1.5});
      vary(found, &Policy::reserve_0, {0, 1, 2, 3, p / 2});
      vary(found, &Policy::slope_0, {0, 0.5, 1, 1.5});
      vary(found, &Policy::last_split, {0, 0.25, 0.5, 1, 1.5, 2, 3});
      vary(found, &Policy::patience, {0, 0.5, 1, 1.5, 2});
      vary(found, &Policy::pair_0, {-1, 1, 1 + p_ / 4, 1 + p_ / 3, 1 + p_ / 2, 1 + p_ * 3 / 4});
      vary(found, &Policy::pair_1, {-1, 0, 1, 2, 3, 1 + p_ / 2});
    }
    if (found.score < best_.score) best_ = std::move(found);
  }

  template <typename T>
  void vary(Found& found, T Policy::*number, std::initializer_list<std::type_identity_t<T>> values) {
    Policy trial = found.policy;
    for (const T value : values) {
      trial.*number = value;
      if (value != found.policy.*number) offer(found, trial);
    }
  }

  void offer(Found& found, const Policy& policy) {
    if (plays_left_ == 0) return;
    --plays_left_;
    Play play(p_, m_, most_alive_, policy);
    const double score = play.time() + (priced_ ? play.price() : 0);
    if (score < found.score - kEpsilon) found = {policy, score, play.time(), play.take()};
  }

  int p_, m_, most_alive_;
  bool priced_;
  size_t plays_left_;
  Found best_;
};

}  // namespace

std::vector<std::vector<Block>> short_stp(int p, int m, int most_alive) {
  Search few(p, m, most_alive, true);
  if (Search::plays(p, m) == 1) return few.take();  // the other would try the same one
  Search fast(p, m, most_alive, false);
  // Near m = p there are not both, so hiding has a price that it may reach. It is higher where 1F1B-I, which
  // runs multiples of p only, is there to be compared with.
  const double worth_hiding = m % p == 0 ? 1.09 : 1.02;
  return (few.time() <= worth_hiding * fast.time() ? few : fast).take();
}

}  // namespace stp
