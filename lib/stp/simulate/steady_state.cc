#include "stp/simulate/steady_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace stp {
namespace {

/// Of the time between the repetitions: rounding makes the times of their ops differ so much.
constexpr double kSame = 1e-11;

void add(RankTime& to, double count, const RankTime& of) {
  to.compute_s += count * of.compute_s;
  to.pp_bubble_s += count * of.pp_bubble_s;
  to.tp_bubble_s += count * of.tp_bubble_s;
}

/// The two repetitions' ops.
class Repetitions {
 public:
  Repetitions(const Program& program, std::span<const double> seconds, const Shortened& shortened,
              const Timeline& timeline)
      : program_(program), seconds_(seconds), timeline_(timeline) {
    const int parts = program.schedule.microbatches / shortened.schedule.microbatches;  // of a microbatch
    for (size_t rank = 0; rank < program.schedule.ranks.size(); ++rank) {
      OpId op = program.rank_begin[rank];
      const auto first_from = [&](int microbatch) {
        const Action forward{Pass::F, 0, parts * microbatch};
        const auto has_it = [&](const Block& block) {
          return std::ranges::count(block.actions(), forward) > 0;
        };
        const auto& blocks = program.schedule.ranks[rank];
        const auto block = std::ranges::find_if(blocks, has_it) - blocks.begin();
        while (op < program.rank_begin[rank + 1] && program.ops[op].block < block) ++op;
        return op;
      };
      const int first = shortened.first, period = shortened.period;
      ranks_.push_back({first_from(first), first_from(first + period), first_from(first + 2 * period)});
    }
    const Parts& longest = *std::ranges::max_element(ranks_, {}, &Parts::size);
    apart_s_ = longest.size() == 0 ? 0 : timeline.start[longest.b] - timeline.start[longest.a];
  }
  [[nodiscard]] double apart_s() const { return apart_s_; }

  /// What the header's proof needs.
  [[nodiscard]] bool are_steady() const {
    std::vector<OpId> latest(program_.streams.size(), ~OpId{0});  // none is before the first
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Parts& parts = ranks_[rank];
      if (parts.b - parts.a != parts.behind - parts.b || !ends_in_time(rank)) return false;
      for (OpId op = program_.rank_begin[rank]; op < program_.rank_begin[rank + 1]; ++op) {
        if (op >= parts.a && op < parts.b && !is_alike(op, op + parts.size())) return false;
        for (const OpId needed : program_.dependencies(op))
          if (op < parts.b ? needed >= parts_of(needed).behind : needed < parts_of(needed).a) return false;
        const OpId before = std::exchange(latest[program_.on_stream[op]], op);
        if (op >= parts.behind && before < parts.a && timeline_.end[before] >= timeline_.start[op])
          return false;  // a stream of no op of A and B
      }
    }
    return true;
  }
  [[nodiscard]] std::vector<RankTime> times_of_one() const {
    std::vector<RankTime> times = times_before(&Parts::behind);
    const std::vector<RankTime> before = times_before(&Parts::b);
    for (size_t rank = 0; rank < times.size(); ++rank) {
      add(times[rank], -1, before[rank]);
      // Each has the time from the rank's last op to the step's end, which is 0 in both.
      times[rank].pp_bubble_s += apart_s_;
    }
    return times;
  }

 private:
  /// The first op of A, of B and behind B.
  struct Parts {
    OpId a, b, behind;
    [[nodiscard]] OpId size() const { return b - a; }
  };

  [[nodiscard]] const Parts& parts_of(OpId op) const { return ranks_[program_.stream_of(op).rank]; }
  [[nodiscard]] bool is_apart(double a, double b) const {
    return std::abs(b - a - apart_s_) <= kSame * apart_s_;
  }
  [[nodiscard]] bool is_alike(OpId a, OpId b) const {
    const auto of_a = program_.dependencies(a), of_b = program_.dependencies(b);
    return program_.on_stream[a] == program_.on_stream[b] && seconds_[a] == seconds_[b] &&
           program_.contends(a) == program_.contends(b) && is_apart(timeline_.start[a], timeline_.start[b]) &&
           is_apart(timeline_.end[a], timeline_.end[b]) &&
           std::ranges::equal(of_a, of_b, [&](OpId needed, OpId later) {
             return later - needed == parts_of(needed).size();
           });
  }

  // A lane's ops slow down those of the other lane that run meanwhile.
  [[nodiscard]] bool ends_in_time(size_t rank) const {
    const Parts& parts = ranks_[rank];
    double starts = std::numeric_limits<double>::infinity(), rest_starts = starts, ends = 0;
    for (OpId op = program_.rank_begin[rank]; op < program_.rank_begin[rank + 1]; ++op) {
      const StreamKind kind = program_.stream_of(op).kind;
      if (kind != StreamKind::compute && kind != StreamKind::tp) continue;
      if (op < parts.b) ends = std::max(ends, timeline_.end[op]);
      if (op >= parts.a && op < parts.b) starts = std::min(starts, timeline_.start[op]);
      if (op >= parts.behind) rest_starts = std::min(rest_starts, timeline_.start[op]);
    }
    return ends <= std::min(rest_starts, starts + 2 * apart_s_);
  }
  // Of the ops before `end`.
  [[nodiscard]] std::vector<RankTime> times_before(OpId Parts::*end) const {
    Timeline part{timeline_.start, timeline_.end, std::vector<bool>(program_.ops.size()), 0, {}, {}};
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      std::fill(part.known.begin() + program_.rank_begin[rank], part.known.begin() + ranks_[rank].*end, true);
    return rank_times(program_, part);
  }

  const Program& program_;
  const std::span<const double> seconds_;
  const Timeline& timeline_;
  std::vector<Parts> ranks_;
  double apart_s_;
};

}  // namespace

bool add_repetitions(const Program& program, std::span<const double> seconds, const Shortened& shortened,
                     Timeline& timeline) {
  const Repetitions repetitions(program, seconds, shortened, timeline);
  if (!repetitions.are_steady()) return false;
  const std::vector<RankTime> times = repetitions.times_of_one();
  const double count = shortened.left_out;
  timeline.step_s += count * repetitions.apart_s();
  for (size_t rank = 0; rank < times.size(); ++rank) add(timeline.ranks[rank], count, times[rank]);
  return true;
}

}  // namespace stp
