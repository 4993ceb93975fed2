// ZB-V (Qi et al., "Zero Bubble Pipeline Parallelism", 2024): V placement, every backward split, no braids.
//
// 1. The order of F and I on each rank: a fixed pattern (1a), and, below 2p activations, list schedules (1b).
// 2. Place W while the pipeline is timed: where memory is needed, in waits that are long enough, where the
//    rank has reached its limit of idle time, the rest at the end.
// 3. Search the limit of idle time, coarse then fine, in four variants: waits before F0 and F1 are filled or
//    not, waits before I0 are or not.
// 4. With m < 2p, defer fewer W while the step does not grow.
//
// It differs from the published method, which places F, I and W in one greedy simulation of the four variants
// and repeats it with smaller limits. Steps 1 and 2 are linear in the number of actions, so that many limits
// can be tried. Any m and p. An activation counts as alive from F to W. The names of steps (F0, F1, I1, I0)
// are those of list_scheduler.h.
#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "baselines/v_grid.h"
#include "stp/base/error.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/list_scheduler.h"

namespace stp {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::max();

struct Problem {
  int p, m, limit;  // of memory, the same for each rank; limits of idle time are IdleLimits
  PassCosts costs;
  // Most W that a rank may have deferred while it holds its largest number of open forwards.
  int spare = std::numeric_limits<int>::max();

  [[nodiscard]] double work() const { return 2.0 * m * (costs.F + costs.I + costs.W); }
  // Times nearer than this count as equal.
  [[nodiscard]] double epsilon() const { return 1e-9 * (costs.F + costs.I + costs.W + costs.p2p); }
};

// 1a. The order of F and I: the pattern, for `alive` activations on every rank (2p: no wait in the steady
// state if all passes take equally long). Microbatches that do not exist are left out.
StepOrder pattern(const Problem& problem, int alive) {
  const int p = problem.p, m = problem.m;
  StepOrder order(p);
  for (int r = 0; r < p; ++r) {
    std::array<int, 4> done{};
    const auto put = [&](Step step) {
      if (done[step] == m) return;
      ++done[step];
      order[r].push_back(step);
    };
    // Between F0 and F1 lie 2 (p − 1 − r) hops, between F1 and I1 2 r: this many microbatches fill them.
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

    // Steady state and cool-down: the cycle continues without forwards once there are none left.
    while (done[kI0] < m) {
      for (const Step step : {kF0, kI0, kF1, kI1}) put(step);
    }
  }
  return order;
}

// 1b. The order of F and I where memory is too small for the pattern with 2p: a list schedule. Each rank runs
// the step that has waited longest, chunk 1 before chunk 0; W only if nothing else is ready or if its memory
// is needed.
class MemoryScheduler {
 public:
  explicit MemoryScheduler(const Problem& problem)
      : problem_(problem),
        state_(problem.p, problem.m, problem.costs.p2p),
        ranks_(problem.p),
        order_(problem.p) {}

  StepOrder run() {
    state_.run_by_time([this](int r, double now) { return choose(r, now); });
    return std::move(order_);
  }

 private:
  using ByChunk = std::array<int, 2>;
  struct Rank {
    ByChunk alive{};
    std::queue<int> deferred;  // the chunks of the W
  };

  // Whether one more F fits besides the `held` activations. F0 leaves memory for an F1, so that the oldest
  // microbatch can always continue: no deadlock.
  [[nodiscard]] bool fits(Step step, const ByChunk& held) const {
    if (!is_forward(step)) return true;
    return held[0] + 1 + (step == kF0 ? std::max(held[1], 1) : held[1]) <= problem_.limit;
  }

  double choose(int r, double now) {
    const auto& done = state_.done(r);
    const ByChunk open{done[kF0] - done[kI0], done[kF1] - done[kI1]};  // alive once deferred W have run
    const auto ready = [&](Step step) {
      return state_.arrival(r, step) <= now + problem_.epsilon() && fits(step, open);
    };
    Step oldest = kW;
    for (const Step step : {ready(kI1) ? kI1 : kI0, ready(kF1) ? kF1 : kF0})
      if (ready(step) && (oldest == kW || state_.arrival(r, step) < state_.arrival(r, oldest))) oldest = step;

    if (oldest == kW && state_.deferred(r) == 0) return state_.next_arrival(r, now);
    run(r, fits(oldest, ranks_[r].alive) ? oldest : kW, now);
    return state_.free(r);
  }

  void run(int r, Step step, double now) {
    state_.run(r, step, now + step_costs(problem_.costs)[step]);
    auto& [alive, deferred] = ranks_[r];
    if (step == kW) {
      --alive[deferred.front()];
      deferred.pop();
      return;
    }
    order_[r].push_back(step);
    if (is_forward(step)) {
      ++alive[chunk_of(step)];
    } else {
      deferred.push(chunk_of(step));
    }
  }

  Problem problem_;
  ListScheduler state_;
  std::vector<Rank> ranks_;
  StepOrder order_;  // of F and I
};

// An order of F and I in which W are to be placed.
struct BaseOrder {
  const Problem& problem;
  const StepOrder& order;
  double least;               // the last rank's start: a bound of the bubble
  std::vector<int> capacity;  // by rank: the most activations that it may hold
  size_t rank_0_is_alone;     // from this step on no rank waits for rank 0, so it runs its W first

  BaseOrder(const Problem& with, const StepOrder& of)
      : problem(with), order(of), least((with.p - 1) * (with.costs.F + with.costs.p2p)) {
    for (const std::vector<Step>& steps : order) capacity.push_back(capacity_for(steps));
    rank_0_is_alone = order[0].rend() - std::find(order[0].rbegin(), order[0].rend(), kI1);
  }

 private:
  [[nodiscard]] int capacity_for(const std::vector<Step>& steps) const {
    if (problem.spare >= problem.limit) return problem.limit;
    int open = 0, most = 0;
    for (const Step step : steps) most = std::max(most, open += is_forward(step) ? 1 : -1);
    return std::min(problem.limit, most + problem.spare);
  }
};

// How W are placed. A rank that has reached its limit of idle time fills a wait with a W even if that is
// longer than the wait.
struct WaitPolicy {
  double idle_allowed = kUnlimited;          // per rank, from time 0 on
  bool before_F = false, before_I0 = false;  // which waits are filled; those before I1 always are

  [[nodiscard]] bool fills(Step step) const { return is_forward(step) ? before_F : step == kI1 || before_I0; }
};

// By step, the idle time up to which a rank may leave the wait before it unfilled.
using IdleLimits = std::array<double, 4>;

IdleLimits idle_limits(const WaitPolicy& policy, const Problem& problem) {
  IdleLimits limits;
  for (const Step step : kSteps)
    limits[step] = policy.fills(step) ? policy.idle_allowed + problem.epsilon() : kUnlimited;
  return limits;
}

// The range of limits that place W equally: from the longest idle time that was allowed to the shortest that
// was not.
struct SameLimits {
  IdleLimits from{-kNever, -kNever, -kNever, -kNever}, below{kNever, kNever, kNever, kNever};

  // Whether a wait that brings the rank's idle time to `idle` is to be filled.
  bool fill(Step step, double idle, const IdleLimits& limits) {
    const bool filled = idle > limits[step];
    double& bound = filled ? below[step] : from[step];
    bound = filled ? std::min(bound, idle) : std::max(bound, idle);
    return filled;
  }
  [[nodiscard]] bool cover(const IdleLimits& limits) const {
    return std::ranges::all_of(
        kSteps, [&](Step step) { return from[step] <= limits[step] && limits[step] < below[step]; });
  }
};

// 2. Places W while the pipeline is timed. What that needs is allocated once.
class WeightPlacer {
 public:
  explicit WeightPlacer(const Problem& problem)
      : now_{ListScheduler(problem.p, problem.m), std::vector<Rank>(problem.p), {}},
        common_(now_),
        placed_(problem.p, std::vector<Step>(size_t{6} * problem.m)) {}

  // `base` is the order of place() from now on.
  void begin(const BaseOrder& base) {
    base_ = &base;
    restart();
  }

  // Places each W: where memory is needed, where a wait is long enough, where the rank may not idle longer,
  // and the rest at the end. Returns the bubble, and leaves the order in placed(); stops and returns kNever
  // once a rank has idled longer than `most_idle`. same() are then the other limits with the same result.
  double place(const IdleLimits& limits, double most_idle) {
    if (common_.same.cover(limits))
      now_ = common_;
    else
      restart();
    double bubble = 0;
    now_.state.follow(base_->order, base_->problem.costs, [&](int r, size_t position, double input) {
      place_before(r, position, input, limits);
      Rank& rank = now_.ranks[r];
      placed_[r][rank.placed++] = base_->order[r][position];
      rank.idle += std::max(input - now_.state.free(r), 0.0);
      if (rank.idle > most_idle) bubble = kNever;
      return bubble < kNever;
    });
    for (int r = 0; r < base_->problem.p && bubble < kNever; ++r) {
      while (now_.state.deferred(r) > 0) weight_gradient(r, base_->problem.costs.W);
      bubble = std::max(bubble, now_.state.free(r) - base_->problem.work());
    }
    return bubble;
  }
  [[nodiscard]] const StepOrder& placed() const { return placed_; }
  [[nodiscard]] const SameLimits& same() const { return now_.same; }

 private:
  struct Rank {
    double idle = 0;
    size_t placed = 0;  // steps put into the order
  };
  struct Progress {
    ListScheduler state;
    std::vector<Rank> ranks;
    SameLimits same;  // limits that lead here
  };

  void restart() {
    now_.state.restart(base_->problem.costs.p2p);
    std::ranges::fill(now_.ranks, Rank{});
    now_.same = {};
    common_ = now_;
    common_is_start_ = true;
  }

  // The W before the step of rank r at `position`, whose input arrives at `input`.
  void place_before(int r, size_t position, double input, const IdleLimits& limits) {
    const double W = base_->problem.costs.W, epsilon = base_->problem.epsilon();
    const ListScheduler& state = now_.state;
    const Step step = base_->order[r][position];
    if (is_forward(step) && state.alive(r) >= base_->capacity[r] && state.deferred(r) > 0)
      weight_gradient(r, W);
    const bool alone = r == 0 && position >= base_->rank_0_is_alone;
    while (state.deferred(r) > 0 && (alone || state.free(r) + W <= input + epsilon)) weight_gradient(r, W);
    const double wait = input - state.free(r), idle = now_.ranks[r].idle + wait;
    if (state.deferred(r) == 0 || wait <= epsilon) return;
    // Up to here few limits differ; in the steady state there are hardly any waits.
    if (idle > base_->least && std::exchange(common_is_start_, false)) common_ = now_;
    if (now_.same.fill(step, idle, limits)) weight_gradient(r, W);
  }

  void weight_gradient(int r, double duration) {
    now_.state.run(r, kW, now_.state.free(r) + duration);
    placed_[r][now_.ranks[r].placed++] = kW;
  }

  const BaseOrder* base_ = nullptr;
  Progress now_;
  Progress common_;  // where the last placement from the start might have become another with another limit
  bool common_is_start_ = true;
  StepOrder placed_;
};

struct Plan {
  StepOrder order;
  double bubble = kNever;       // makespan without the work
  double near_bubble = kNever;  // the same with slightly different costs
  // What it was made with.
  const StepOrder* base = nullptr;
  IdleLimits limits = {};
  bool for_near = false;
};

double bubble_of(const Problem& problem, const StepOrder& order) {
  return std::max(makespan(order, problem.m, problem.costs) - problem.work(), 0.0);
}

// 3. Searches the limit of idle time that gives the smallest bubble: no closed form is known, and the bubble
// is not monotone in it. First coarsely in all four variants, then finely around the best. Exact fits hide
// the effect of slightly longer transfers, and equal costs make many orders equal; so the search is made
// twice, for the costs and for slightly different ones, which decide between orders that are equal for the
// costs.
class OrderSearch {
 public:
  OrderSearch(const Problem& problem, WeightPlacer& placer)
      : problem_(problem),
        near_(problem),
        placer_(placer),
        coarse_(problem.m < 2 * problem.p ? std::clamp(kSmall / (problem.p * problem.m), 6, 200) : 6) {
    near_.costs.W *= 0.75;
    near_.costs.p2p += 0.005 * (problem.costs.F + problem.costs.I);
  }

  void try_order(const StepOrder& order) {
    for (const bool near : {false, true}) {
      const Problem& problem = near ? near_ : problem_;
      const BaseOrder base(problem, order);
      placer_.begin(base);
      std::vector<SameLimits> tried;
      WaitPolicy best;
      double best_bubble = kNever;
      const auto attempt = [&](const WaitPolicy& policy) {
        if (best_bubble <= base.least + problem.epsilon()) return;  // no improvement is possible
        const IdleLimits limits = idle_limits(policy, problem);
        // The same limits would give the same result.
        for (const SameLimits& same : tried)
          if (same.cover(limits)) return;
        const double bubble = placer_.place(limits, best_bubble);
        tried.push_back(placer_.same());
        if (bubble >= best_bubble - problem.epsilon()) return;
        best = policy;
        best_bubble = bubble;
        offer({placer_.placed(), bubble, kNever, &order, limits, near});
      };
      attempt({});
      const double step = (best_bubble - base.least) / coarse_;
      for (int variant = 0; variant < 4; ++variant)
        for (int i = 0; i < coarse_; ++i)
          attempt({base.least + i * step, (variant & 1) != 0, (variant & 2) != 0});
      const WaitPolicy coarse = best;
      for (int i = 1 - kFine; i < kFine && coarse.idle_allowed < kUnlimited; ++i)
        attempt({coarse.idle_allowed + i * step / kFine, coarse.before_F, coarse.before_I0});
    }
  }

  [[nodiscard]] const Plan& best() const { return best_; }

  // The best plan, with fewer activations on one rank after the other where that takes no longer.
  Plan tightened() {
    Plan plan = best_;
    int tries = 10 * kSmall / (problem_.p * problem_.m);
    for (int r = 0; r < problem_.p && tries > 0; --tries) {
      BaseOrder base(plan.for_near ? near_ : problem_, *plan.base);
      for (int rank = 0; rank < problem_.p; ++rank) base.capacity[rank] = v_grid::peak_of(plan.order[rank]);
      const int fewer = --base.capacity[r];
      placer_.begin(base);
      placer_.place(plan.limits, kNever);
      Plan next = plan;
      next.order = placer_.placed();
      next.bubble = bubble_of(problem_, next.order);
      next.near_bubble = bubble_of(near_, next.order);
      if (v_grid::peak_of(next.order[r]) <= fewer && next.bubble <= plan.bubble + problem_.epsilon() &&
          next.near_bubble <= plan.near_bubble + problem_.epsilon())
        plan = std::move(next);
      else
        ++r;
    }
    return plan;
  }

  // Whether the step is no longer than with `other`, and at slightly different costs hardly longer.
  [[nodiscard]] bool keeps_up_with(const Plan& other) const {
    return best_.bubble <= other.bubble + problem_.epsilon() &&
           best_.near_bubble <= other.near_bubble + 0.02 * (near_.work() + other.near_bubble);
  }

 private:
  static constexpr int kFine = 8;
  // By p · m, how much finer few microbatches are searched: as long as it takes little time.
  static constexpr int kSmall = 20'000;

  void offer(Plan plan) {
    if (plan.for_near) {
      plan.near_bubble = plan.bubble;
      plan.bubble = bubble_of(problem_, plan.order);
    } else if (plan.bubble <= best_.bubble + problem_.epsilon()) {
      plan.near_bubble = bubble_of(near_, plan.order);
    }
    const double gain = best_.bubble - plan.bubble;
    if (gain > problem_.epsilon() || (gain > -problem_.epsilon() && plan.near_bubble < best_.near_bubble))
      best_ = std::move(plan);
  }

  Problem problem_, near_;
  WeightPlacer& placer_;
  const int coarse_;
  Plan best_;
};

Schedule make_zb_v(const GeneratorRequest& request) {
  if (request.options.memory_limit == 1)
    throw InputError("", "memory_limit",
                     "zb-v needs memory for both chunks of a microbatch on every rank, not 1",
                     "allow 2 activations or more, or leave it out for 2p");
  const int p = request.pp, m = request.microbatches;
  const int limit = request.options.memory_limit == 0 ? 2 * p : request.options.memory_limit;
  const Problem problem{p, m, limit, request.costs};

  std::vector<StepOrder> orders;
  if (limit >= std::min(2 * p, 2 * m)) {
    orders.push_back(pattern(problem, 2 * p));
    // Transfers lengthen every path; with more memory, more microbatches can cover it.
    const double hops = 2.0 * (p - 1) * problem.costs.p2p;
    int more = std::clamp(limit - 2 * p, 0, 2 * m);
    if (hops < more * problem.costs.F) more = static_cast<int>(hops / problem.costs.F);
    if (more > 0 && hops > 0) orders.push_back(pattern(problem, 2 * p + more));
  } else {
    orders.push_back(MemoryScheduler(problem).run());
    orders.push_back(MemoryScheduler({p, m, limit, PassCosts{}}).run());
    orders.push_back(pattern(problem, limit));  // sometimes better, at a limit of 2 much better
  }
  WeightPlacer placer(problem);
  const auto search = [&](int spare) {
    OrderSearch found({p, m, limit, request.costs, spare}, placer);
    for (const StepOrder& order : orders) found.try_order(order);
    return found;
  };
  OrderSearch all = search(limit);
  if (m >= 2 * p) return schedule_of(all.best().order, m);

  // 4. With few microbatches, deferred W may use memory for no gain: while the step gets no longer, halves
  // the number that may be deferred, down to one per chunk.
  Plan chosen = all.tightened();
  for (int spare = (std::min(limit, 2 * m) - m - 1) / 2; spare >= 2; spare /= 2) {
    OrderSearch tighter = search(spare);
    if (!tighter.keeps_up_with(all.best())) break;
    chosen = tighter.tightened();
  }
  return schedule_of(chosen.order, m);
}

}  // namespace

extern const Generator schedule_zb_v = {
    .name = "zb-v",
    .summary = "backwards split, W fills the waits, V placement (Zero Bubble, 2024)",
    .chunks = 2,
    .cost_aware = true,
    .takes_limit = true,
    .make = make_zb_v,
    .built_into = {"pytorch"}};

}  // namespace stp
