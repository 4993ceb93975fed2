#include "stp/schedule/copy_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/timing.h"

namespace stp {
namespace {

// The authors' constants (sail-sg/zero-bubble-pipeline-parallelism, scheduler/offloading.py): an activation
// that lives for less copies stays; while nothing comes back, a copy to the host takes less time.
constexpr double kFewestCopies = 6, kAlone = 0.7;

// The busy times of a link's direction.
class Line {
 public:
  explicit Line(double epsilon) : epsilon_(epsilon) {}
  void add(double start, double end) { busy_[start] = end; }
  // The earliest start from `from` on, and the latest with an end up to `until`, of a free time.
  [[nodiscard]] double earliest(double from, double length) const {
    auto next = busy_.upper_bound(from);
    if (next != busy_.begin()) from = std::max(from, std::prev(next)->second);
    for (; next != busy_.end() && next->first < from + length - epsilon_; ++next)
      from = std::max(from, next->second);
    return from;
  }
  [[nodiscard]] double latest(double until, double length) const {
    for (auto next = busy_.lower_bound(until - epsilon_); next != busy_.begin();) {
      --next;
      if (next->second <= until - length + epsilon_) break;
      until = std::min(until, next->first);
    }
    return until - length;
  }

 private:
  const double epsilon_;
  std::map<double, double> busy_;  // starts and ends
};

struct Place {
  int rank = -1, block = -1;
  Action action = {};
};

// An activation between the end of its forward and the start of its backward.
struct Lifetime {
  double begin, end;
  int rank, forward_block, backward_block;
  Action forward, backward;
};

class Planner {
 public:
  Planner(const Schedule& schedule, const CopyRequest& request)
      : schedule_(schedule),
        request_(request),
        epsilon_(1e-9 * (request.costs.F + request.costs.I + request.costs.W)),
        timing_(time_blocks(schedule, request.costs)),
        plan_(schedule.pp()) {
    for (int rank = 0; rank < schedule.pp(); ++rank)
      for (int block = 0; block < static_cast<int>(schedule.ranks[rank].size()); ++block)
        for (const Action& action : schedule.ranks[rank][block].actions())
          if (action.pass != Pass::W)
            places_[{hop_of(schedule.placement, rank, action), action.microbatch}] = {rank, block, action};
  }

  std::vector<std::vector<PlannedCopy>> plan() && {
    delay_warm_up();
    for (int rank = 0; rank < schedule_.pp(); rank += request_.share)
      plan_link(rank, std::min(schedule_.pp(), rank + request_.share));
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const std::vector<Block>& blocks(int rank) const { return schedule_.ranks[rank]; }

  // From the last to the first, the forwards before a rank's first backward.
  void delay_warm_up() {
    std::vector<std::tuple<double, int, int>> warm_up;
    for (int rank = 0; rank < schedule_.pp(); ++rank)
      for (int block = 0; block + 1 < static_cast<int>(blocks(rank).size()); ++block) {
        const auto& actions = blocks(rank)[block].actions();
        if (!std::ranges::all_of(actions, [](const Action& action) { return action.pass == Pass::F; })) break;
        warm_up.emplace_back(timing_[rank][block].start, rank, block);
      }
    std::ranges::sort(warm_up, std::greater<>());
    for (const auto& [start, rank, block] : warm_up) {
      double end = timing_[rank][block + 1].start;
      for (const Action& action : blocks(rank)[block].actions()) {
        const Place consumer = places_.at({hop_of(schedule_.placement, rank, action) + 1, action.microbatch});
        end = std::min(end, timing_[consumer.rank][consumer.block].start -
                                (consumer.rank == rank ? 0 : request_.costs.p2p));
      }
      BlockTime& time = timing_[rank][block];
      const double late = std::max(0.0, end - time.end);
      time = {time.start + late, time.end + late};
    }
  }

  [[nodiscard]] std::vector<Lifetime> lifetimes(int first, int last) const {
    std::vector<Lifetime> found;
    for (int rank = first; rank < last; ++rank)
      for (size_t block = 0; block < blocks(rank).size(); ++block)
        for (const Action& action : blocks(rank)[block].actions()) {
          if (action.pass != Pass::F || action.chunk >= request_.chunks) continue;
          const int stage = schedule_.placement.stage(rank, action.chunk);
          const int back = hop_of(schedule_.placement, stage, true);
          const Place backward = places_.at({back, action.microbatch});
          const double begin = timing_[rank][block].end, end = timing_[rank][backward.block].start;
          if (end - begin > kFewestCopies * request_.seconds + epsilon_)
            found.push_back(
                {begin, end, rank, static_cast<int>(block), backward.block, action, backward.action});
        }
    return found;
  }

  // The first block of a rank that does not start before a time, or the number of its blocks.
  [[nodiscard]] int block_from(int rank, double time) const {
    const auto found = std::ranges::lower_bound(timing_[rank], time - epsilon_, {}, &BlockTime::start);
    return static_cast<int>(found - timing_[rank].begin());
  }

  // Copies back from the last on, as late as they come in time; then copies to the host as early as possible.
  void plan_link(int first, int last) {
    std::vector<Lifetime> all = lifetimes(first, last);
    const double copy = request_.seconds;
    Line backs(epsilon_), outs(epsilon_);
    std::vector<Line> own(last - first, Line(epsilon_));  // a rank's copies back, beside which none leaves
    std::ranges::stable_sort(all, std::greater<>(), &Lifetime::end);
    std::map<std::tuple<int, int, int>, double> starts;
    double first_back = kNever;
    for (const Lifetime& each : all) {
      const double start = backs.latest(each.end - request_.costs.I, copy);
      if (start < (each.begin + each.end) / 2) continue;  // others need the time more
      backs.add(start, start + copy);
      own[each.rank - first].add(start, start + copy);
      starts[{each.rank, each.forward.chunk, each.forward.microbatch}] = start;
      first_back = std::min(first_back, start);
    }
    std::ranges::stable_sort(all, {}, &Lifetime::begin);
    for (const Lifetime& each : all) {
      const auto planned = starts.find({each.rank, each.forward.chunk, each.forward.microbatch});
      if (planned == starts.end()) continue;
      const auto room = [&](double length) {
        double start = each.begin;
        for (double before = start - 1; before != start;) {
          before = start;
          start = own[each.rank - first].earliest(outs.earliest(start, length), length);
        }
        return start;
      };
      double length = kAlone * copy, start = room(length);
      if (start + length > first_back + epsilon_) start = room(length = copy);
      const double back = planned->second;
      const int left = std::max(each.forward_block + 1, block_from(each.rank, start)),
                freed_at = std::max(left, block_from(each.rank, start + length)),
                returned = std::min(each.backward_block, block_from(each.rank, back)),
                during = block_from(each.rank, back + 2 * epsilon_) - 1;
      if (start + length > back + epsilon_ || freed_at >= during) continue;
      outs.add(start, start + length);
      plan_[each.rank].push_back({each.forward, start, left, freed_at});
      plan_[each.rank].push_back({each.backward, back, returned, during});
    }
    link_neighbours(first, last);
  }

  void link_neighbours(int first, int last) {
    std::vector<std::tuple<double, int, int>> in_order;  // start, rank, index
    for (int rank = first; rank < last; ++rank) {
      std::ranges::stable_sort(plan_[rank], {}, &PlannedCopy::start);
      for (size_t i = 0; i < plan_[rank].size(); ++i)
        in_order.emplace_back(plan_[rank][i].start, rank, static_cast<int>(i));
    }
    std::ranges::sort(in_order);
    Place latest[2];
    for (const auto& [start, rank, index] : in_order) {
      PlannedCopy& copy = plan_[rank][index];
      Place& before = latest[copy.back() ? 1 : 0];
      if (before.rank >= 0 && before.rank != rank)
        copy.neighbour = before.rank, copy.neighbour_copy = before.block;
      before = {rank, index};
    }
  }

  const Schedule& schedule_;
  const CopyRequest& request_;
  const double epsilon_;
  Timing timing_;
  std::map<std::pair<int, int>, Place> places_;  // by hop and microbatch
  std::vector<std::vector<PlannedCopy>> plan_;
};

}  // namespace

std::vector<std::vector<PlannedCopy>> plan_copies(const Schedule& schedule, const CopyRequest& request) {
  return Planner(schedule, request).plan();
}

}  // namespace stp
