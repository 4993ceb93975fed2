// ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", 2024): V placement, every backward split, no braids.
// As published, a greedy simulation runs in four variants (fill waits before F with W or not, before I or
// not) and is repeated, with the bubbles of the last run allowed, while that lessens the worst one. Here it
// is taken apart: first the order of F and I, which is a pattern, then W, which are placed by playing the
// pipeline through. A play is linear in the number of actions, so many allowances of idle time can be tried
// in each variant; where m is small, orders that put off fewer W, too. Any m and p. An activation counts as
// alive from F to W.
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "baselines/v_steps.h"
#include "stp/base/error.h"
#include "stp/schedule/generator.h"

namespace stp {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kUnlimited = std::numeric_limits<double>::max();

constexpr int kLegs = 4;

struct Problem {
  int p, m, limit;
  PassCosts costs;
  int spare = std::numeric_limits<int>::max();  // most W put off on a rank while its most passes are open

  [[nodiscard]] double cost(Step leg) const { return is_forward(leg) ? costs.F : costs.I; }
  [[nodiscard]] double work() const { return 2.0 * m * (costs.F + costs.I + costs.W); }
  // Times nearer than this are the same time.
  [[nodiscard]] double epsilon() const { return 1e-9 * (costs.F + costs.I + costs.W + costs.p2p); }
};

// When the inputs of each rank's legs are there, as far as known: outputs under way, first-in first-out.
class Inputs {
 public:
  explicit Inputs(const Problem& problem)
      : p_(problem.p),
        m_(problem.m),
        times_(static_cast<size_t>(problem.p) * kLegs * problem.m),
        queues_(static_cast<size_t>(problem.p) * kLegs) {
    restart(problem.costs.p2p);
  }

  // Nothing is under way but rank 0's F0, whose inputs are there from time 0 on.
  void restart(double p2p) {
    p2p_ = p2p;
    std::fill(queues_.begin(), queues_.end(), Queue{});
    queues_[kF0].sent = m_;
  }

  [[nodiscard]] double next(int rank, Step leg) const {
    const Queue& queue = queues_[rank * kLegs + leg];
    return queue.taken == queue.sent ? kNever : times_[index(rank, leg) + queue.taken];
  }
  void take(int rank, Step leg) { ++queues_[rank * kLegs + leg].taken; }

  // Hands on what `leg` on `rank` made at `time`, and tells to which rank: to itself where the V turns (and
  // at the loss), or where there is nobody to hand it to.
  int send(int rank, Step leg, double time) {
    const int to = goes_down(leg) ? rank + 1 : rank - 1;
    if (to >= 0 && to < p_) {
      push(to, leg, time + p2p_);
      return to;
    }
    if (leg != kI0) push(rank, static_cast<Step>(leg + 1), time);
    return rank;
  }

 private:
  struct Queue {
    int taken = 0, sent = 0;
  };
  [[nodiscard]] size_t index(int rank, Step leg) const {
    return static_cast<size_t>(rank * kLegs + leg) * m_;
  }
  void push(int rank, Step leg, double time) {
    times_[index(rank, leg) + queues_[rank * kLegs + leg].sent++] = time;
  }

  int p_, m_;
  double p2p_ = 0;
  std::vector<double> times_;  // by rank, leg and microbatch; those of rank 0's F0 stay 0
  std::vector<Queue> queues_;  // by rank and leg
};

// 1a. The order of F and I: the pattern, for `alive` activations on every rank (2p: no wait in the steady
// state if all passes take as long). Where it names more microbatches than there are, they are left out.
Orders pattern(const Problem& problem, int alive) {
  const int p = problem.p, m = problem.m;
  Orders orders(p);
  for (int r = 0; r < p; ++r) {
    std::array<int, kLegs> done{};
    const auto put = [&](Step leg) {
      if (done[leg] == m) return;
      ++done[leg];
      orders[r].push_back(leg);
    };
    // F1 needs p − 1 − r hops down and up, I1 then r up and down: these many microbatches cover the way.
    const int pairs = p == 1 ? 0 : r * (alive - 2) / (2 * (p - 1));
    const int lead = alive - 1 - 2 * pairs;

    // Warm-up, down the V.
    for (int i = 0; i < lead; ++i) put(kF0);

    // Warm-up, both chunks in turn.
    for (int i = 0; i < pairs; ++i) {
      put(kF1);
      put(kF0);
    }
    put(kF1);

    // The first backwards, until I0 has come back up.
    for (int i = 0; i < (lead - 1) / 2; ++i) {
      put(kI1);
      put(kF1);
    }
    put(kI1);

    // Steady state and cool-down: the cycle goes on without the forwards once they are used up.
    while (done[kI0] < m) {
      for (const Step leg : {kF0, kI0, kF1, kI1}) put(leg);
    }
  }
  return orders;
}

// 1b. The order of F and I where memory is too small for the pattern: a list schedule. Each rank runs what
// has waited longest, chunk 1 before chunk 0; W only when there is nothing else or when its memory is needed.
class ListScheduler {
 public:
  explicit ListScheduler(const Problem& problem) : problem_(problem), inputs_(problem), ranks_(problem.p) {}

  Orders run() {
    for (int r = 0; r < problem_.p; ++r) wake(r, 0);
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].wake != time) continue;  // an earlier event has taken its place
      ranks_[rank].wake = kNever;
      step(rank, time);
    }
    Orders orders;
    for (Rank& rank : ranks_) orders.push_back(std::move(rank.order));
    return orders;
  }

 private:
  struct Rank {
    double free = 0, wake = kNever;
    std::array<int, 2> alive{}, open{};  // by chunk: activations held, and of them those without their I
    std::deque<int> pending;             // the chunks of the W put off
    std::vector<Step> order;
  };

  // Whether one more F fits. F0 leaves room for an F1, so that the oldest microbatch can always go on: no
  // deadlock.
  [[nodiscard]] bool fits(Step leg, const std::array<int, 2>& held) const {
    if (!is_forward(leg)) return true;
    return held[0] + 1 + (leg == kF0 ? std::max(held[1], 1) : held[1]) <= problem_.limit;
  }

  void step(int r, double now) {
    Rank& rank = ranks_[r];
    const auto ready = [&](Step leg) {
      return inputs_.next(r, leg) <= now + problem_.epsilon() && fits(leg, rank.open);
    };
    Step oldest = kW;
    for (const Step leg : {ready(kI1) ? kI1 : kI0, ready(kF1) ? kF1 : kF0})
      if (ready(leg) && (oldest == kW || inputs_.next(r, leg) < inputs_.next(r, oldest))) oldest = leg;

    if (oldest == kW && rank.pending.empty()) {  // sleep until the next input that is known, or a newer one
      double next = kNever;
      for (const Step leg : {kF0, kF1, kI1, kI0})
        if (inputs_.next(r, leg) > now) next = std::min(next, inputs_.next(r, leg));
      wake(r, next);
      return;
    }
    if (oldest == kW || !fits(oldest, rank.alive)) {
      --rank.alive[rank.pending.front()];
      rank.pending.pop_front();
      rank.free = now + problem_.costs.W;
    } else {
      run_leg(r, oldest, now);
    }
    wake(r, rank.free);
  }

  void run_leg(int r, Step leg, double now) {
    Rank& rank = ranks_[r];
    inputs_.take(r, leg);
    rank.order.push_back(leg);
    rank.free = now + problem_.cost(leg);
    const int chunk = chunk_of(leg);
    if (is_forward(leg)) {
      ++rank.alive[chunk];
      ++rank.open[chunk];
    } else {
      --rank.open[chunk];
      rank.pending.push_back(chunk);
    }
    const int to = inputs_.send(r, leg, rank.free);
    if (to != r) wake(to, std::max(ranks_[to].free, rank.free + problem_.costs.p2p));
  }

  void wake(int r, double time) {
    if (ranks_[r].wake <= time) return;
    ranks_[r].wake = time;
    events_.emplace(time, r);
  }

  using Event = std::pair<double, int>;  // time, rank
  Problem problem_;
  Inputs inputs_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

// How W are placed. A rank that may not idle longer fills a wait with a W even if that is longer than the
// wait.
struct Policy {
  double idle_allowed = kNever;              // per rank, from time 0 on
  bool before_F = false, before_I0 = false;  // which waits are filled so; those before I1 always

  [[nodiscard]] bool fills(Step leg) const { return is_forward(leg) ? before_F : leg == kI1 || before_I0; }
};

struct Plan {
  Orders orders;
  double bubble = kNever;       // makespan without the work
  double near_bubble = kNever;  // the same where costs are a little different
};

// An order of F and I that W are to be placed in.
struct Legs {
  const Orders& orders;
  std::vector<int> rooms;  // the most activations that each rank may hold
  size_t rank_0_is_alone =
      0;  // from this step on nobody waits for what rank 0 does, so that it does its W first

  Legs(const Problem& problem, const Orders& of) : orders(of) {
    for (const std::vector<Step>& legs : orders) rooms.push_back(room(problem, legs));
    rank_0_is_alone = orders[0].rend() - std::find(orders[0].rbegin(), orders[0].rend(), kI1);
  }

 private:
  static int room(const Problem& problem, const std::vector<Step>& legs) {
    if (problem.spare >= problem.limit) return problem.limit;
    int open = 0, most = 0;
    for (const Step leg : legs) most = std::max(most, open += is_forward(leg) ? 1 : -1);
    return std::min(problem.limit, most + problem.spare);
  }
};

// Up to which idle time a rank may wait before a leg without filling the wait, by leg.
using IdleLimits = std::array<double, kLegs>;

IdleLimits idle_limits(const Policy& policy, const Problem& problem) {
  IdleLimits limits;
  for (const Step leg : {kF0, kF1, kI1, kI0})
    limits[leg] =
        policy.fills(leg) ? std::min(policy.idle_allowed + problem.epsilon(), kUnlimited) : kUnlimited;
  return limits;
}

// Which limits lead to one and the same play: it has compared idle times with them, and all from the longest
// that was allowed to the shortest that was not compare alike.
struct SamePlay {
  IdleLimits from{-kNever, -kNever, -kNever, -kNever}, below{kNever, kNever, kNever, kNever};

  // Whether a wait that brings the rank's idle time to `idle` is to be filled.
  bool fill(Step leg, double idle, const IdleLimits& limits) {
    const bool filled = idle > limits[leg];
    double& bound = filled ? below[leg] : from[leg];
    bound = filled ? std::min(bound, idle) : std::max(bound, idle);
    return filled;
  }
  [[nodiscard]] bool covers(const IdleLimits& limits) const {
    for (int leg = 0; leg < kLegs; ++leg)
      if (limits[leg] < from[leg] || limits[leg] >= below[leg]) return false;
    return true;
  }
};

// 2. Plays the pipeline through. What it needs for that is made once.
class Player {
 public:
  explicit Player(const Problem& problem)
      : inputs_(problem),
        ranks_(problem.p),
        placed_(problem.p, std::vector<Step>(size_t{kLegs + 2} * problem.m)),
        p_(problem.p) {}

  // Puts each W where it is: where memory is needed, where a wait is long enough for it, where the rank may
  // not idle longer, and the rest at the end. Gives the bubble, and `placed()` the orders; given up, with
  // kNever, once a rank has idled longer than `most_idle`. `same` learns for which other limits the play
  // would have been the same.
  double place(const Problem& problem, const Legs& legs, const IdleLimits& limits, double most_idle,
               SamePlay& same) {
    return play(problem, legs.orders, most_idle, [&](int r, Step leg, double input) {
      Rank& rank = ranks_[r];
      while (is_forward(leg) && rank.alive == legs.rooms[r]) weight_gradient(r, problem);
      const bool alone = r == 0 && rank.next >= legs.rank_0_is_alone;
      while (rank.pending > 0 && (alone || rank.time + problem.costs.W <= input + problem.epsilon()))
        weight_gradient(r, problem);
      const double wait = input - rank.time;
      if (rank.pending > 0 && wait > problem.epsilon() && same.fill(leg, rank.idle + wait, limits))
        weight_gradient(r, problem);
    });
  }
  [[nodiscard]] const Orders& placed() const { return placed_; }

  // The bubble of orders that have their W.
  double replay(const Problem& problem, const Orders& orders) {
    return play(problem, orders, kNever, [](int, Step, double) {});
  }

 private:
  struct Rank {
    double time = 0, idle = 0;
    size_t next = 0, placed = 0;  // steps taken of the order given, and put into the one made
    int alive = 0, pending = 0;
    Step waiting_for = kW;
  };

  void put(int r, Step step) { placed_[r][ranks_[r].placed++] = step; }
  void weight_gradient(int r, const Problem& problem) {
    Rank& rank = ranks_[r];
    --rank.alive;
    --rank.pending;
    rank.time += problem.costs.W;
    put(r, kW);
  }

  // `fill_before(rank, leg, input)` may put W before a leg whose input is there at `input`.
  template <typename FillBefore>
  double play(const Problem& problem, const Orders& given, double most_idle, const FillBefore& fill_before) {
    inputs_.restart(problem.costs.p2p);
    std::fill(ranks_.begin(), ranks_.end(), Rank{});
    runnable_.clear();
    for (int r = p_ - 1; r >= 0; --r) runnable_.push_back(r);

    double bubble = 0;
    while (!runnable_.empty()) {
      const int r = runnable_.back();
      runnable_.pop_back();
      Rank& rank = ranks_[r];
      for (; rank.next < given[r].size(); ++rank.next) {
        const Step leg = given[r][rank.next];
        if (leg == kW) {
          weight_gradient(r, problem);
          continue;
        }
        const double input = inputs_.next(r, leg);
        if (input == kNever) {
          rank.waiting_for = leg;
          break;
        }
        inputs_.take(r, leg);
        fill_before(r, leg, input);

        rank.idle += std::max(input - rank.time, 0.0);
        if (rank.idle > most_idle) return kNever;
        rank.time = std::max(input, rank.time) + problem.cost(leg);
        ++(is_forward(leg) ? rank.alive : rank.pending);
        put(r, leg);
        const int to = inputs_.send(r, leg, rank.time);
        if (ranks_[to].waiting_for == leg && to != r) {
          ranks_[to].waiting_for = kW;
          runnable_.push_back(to);
        }
      }
      if (rank.next < given[r].size()) continue;
      while (rank.pending > 0) weight_gradient(r, problem);
      bubble = std::max(bubble, rank.time - problem.work());
    }
    for (int r = 0; r < p_; ++r)
      if (ranks_[r].next < given[r].size())
        throw std::logic_error("zb-v: its order of F and I has a deadlock");
    return bubble;
  }

  Inputs inputs_;
  std::vector<Rank> ranks_;
  Orders placed_;
  std::vector<int> runnable_;
  int p_;
};

// 3. Searches the allowance of idle time that gives the smallest bubble: none is known in closed form, and it
// is not monotone. First coarsely in all four variants, then finely around the best. Waits that come out
// exactly hide what a little more time of transfer does, and equal costs make many orders equal; so the
// search is made twice, for the costs and for others near them, and among orders that are equal for the costs
// the better one near them wins.
class Search {
 public:
  Search(const Problem& problem, Player& player) : problem_(problem), near_(problem), player_(player) {
    near_.costs.W *= 0.75;
    near_.costs.p2p += 0.005 * (problem.costs.F + problem.costs.I);
  }

  void try_order(const Orders& orders) {
    const Legs legs(problem_, orders);
    for (const bool near : {false, true}) {
      const Problem& problem = near ? near_ : problem_;
      const double least = (problem.p - 1) * (problem.costs.F + problem.costs.p2p);  // the last rank's start
      std::vector<SamePlay> plays;
      Policy best;
      double best_bubble = kNever;
      const auto attempt = [&](const Policy& policy) {
        if (best_bubble <= least + problem.epsilon()) return;  // there is nothing to gain
        const IdleLimits limits = idle_limits(policy, problem);
        // The same again would gain nothing.
        for (const SamePlay& play : plays)
          if (play.covers(limits)) return;
        const double bubble = player_.place(problem, legs, limits, best_bubble, plays.emplace_back());
        if (bubble >= best_bubble - problem.epsilon()) return;
        best = policy;
        best_bubble = bubble;
        offer({player_.placed(), bubble}, near);
      };
      attempt({});
      const double step = (best_bubble - least) / kCoarse;
      for (int variant = 0; variant < 4; ++variant)
        for (int i = 0; i < kCoarse; ++i) attempt({least + i * step, (variant & 1) != 0, (variant & 2) != 0});
      const Policy coarse = best;
      for (int i = 1 - kFine; i < kFine && coarse.idle_allowed < kNever; ++i)
        attempt({coarse.idle_allowed + i * step / kFine, coarse.before_F, coarse.before_I0});
    }
  }

  [[nodiscard]] const Plan& best() const { return best_; }

  // Whether the step takes hardly longer than with `other`.
  [[nodiscard]] bool keeps_up_with(const Plan& other) const {
    return best_.bubble <= other.bubble + 0.01 * (problem_.work() + other.bubble) &&
           best_.near_bubble <= other.near_bubble + 0.02 * (near_.work() + other.near_bubble);
  }

 private:
  static constexpr int kCoarse = 6, kFine = 8;

  void offer(Plan plan, bool made_for_near) {
    if (made_for_near) {
      plan.near_bubble = plan.bubble;
      plan.bubble = player_.replay(problem_, plan.orders);
    } else if (plan.bubble <= best_.bubble + problem_.epsilon()) {
      plan.near_bubble = player_.replay(near_, plan.orders);
    }
    const double gain = best_.bubble - plan.bubble;
    if (gain > problem_.epsilon() || (gain > -problem_.epsilon() && plan.near_bubble < best_.near_bubble))
      best_ = std::move(plan);
  }

  Problem problem_, near_;
  Player& player_;
  Plan best_;
};

void check(const GeneratorRequest& request) {
  constexpr double kMost = 1e100;  // whose sums are finite
  for (const double cost : {request.costs.F, request.costs.I, request.costs.W, request.costs.p2p})
    if (!(cost >= 0 && cost <= kMost))
      throw InputError("", "costs", "zb-v cannot use a cost of " + std::to_string(cost),
                       "write numbers from 0 to 1e100");
  if (request.memory_limit < 0 || request.memory_limit == 1)
    throw InputError("", "memory_limit",
                     "zb-v needs room for both chunks of a microbatch on every rank, not " +
                         std::to_string(request.memory_limit),
                     "allow 2 activations or more; 0 stands for 2p");
}

Schedule make_zb_v(const GeneratorRequest& request) {
  check(request);
  const int p = request.pp, m = request.microbatches;
  const int limit = request.memory_limit == 0 ? 2 * p : request.memory_limit;
  const Problem problem{p, m, limit, request.costs};

  std::vector<Orders> orders;
  if (limit >= std::min(2 * p, 2 * m)) {
    orders.push_back(pattern(problem, 2 * p));
    // Transfers lengthen every way; with more memory, more microbatches can cover it.
    const double hops = 2.0 * (p - 1) * problem.costs.p2p;
    int more = std::clamp(limit - 2 * p, 0, 2 * m);
    if (hops < more * problem.costs.F) more = static_cast<int>(hops / problem.costs.F);
    if (more > 0 && hops > 0) orders.push_back(pattern(problem, 2 * p + more));
  } else {
    orders.push_back(ListScheduler(problem).run());
    orders.push_back(ListScheduler({p, m, limit, PassCosts{}}).run());
    orders.push_back(pattern(problem, limit));  // at times better, at a limit of 2 by far
  }
  Player player(problem);
  const auto search = [&](int spare) {
    Search found({p, m, limit, request.costs, spare}, player);
    for (const Orders& legs : orders) found.try_order(legs);
    return found;
  };
  const Plan fastest = search(limit).best();

  // 4. Few microbatches leave ranks room, which W put off would fill for little gain: as long as the step
  // takes hardly longer, half as many may be put off, though at least one of each chunk.
  Plan chosen = fastest;
  for (int spare = m < 2 * p ? (std::min(limit, 2 * m) - m - 1) / 2 : 0; spare >= 2; spare /= 2) {
    const Search tighter = search(spare);
    if (!tighter.keeps_up_with(fastest)) break;
    chosen = tighter.best();
  }
  return schedule_of("zb-v", chosen.orders, m);
}

}  // namespace

extern const Generator schedule_zb_v = {
    "zb-v", "backwards split, W fills the waits, V placement (Zero Bubble, 2024)", 2, false, true, make_zb_v};

}  // namespace stp
