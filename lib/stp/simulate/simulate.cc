#include "stp/simulate/simulate.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "stp/program/repeat.h"

namespace stp {
namespace {

constexpr OpId kNone = ~OpId{0};
constexpr double kNever = std::numeric_limits<double>::infinity();

// Shared by both engines: the head of every stream and the waiting streams. A stream waits for at most one op
// at a time, so the waiters of an op form a linked list.
class Replay {
 public:
  Replay(const Program& program, std::span<const double> seconds)
      : program_(program),
        seconds_(seconds),
        next_in_stream_(program.ops.size(), kNone),
        first_waiter_(program.ops.size(), kNone),
        head_(program.streams.size(), kNone),
        next_waiter_(program.streams.size(), kNone) {
    timeline_.start.assign(program.ops.size(), -1);
    timeline_.end.assign(program.ops.size(), -1);
    std::vector<OpId> last(program.streams.size(), kNone);
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const uint32_t stream = program.ops[op].stream;
      (last[stream] == kNone ? head_[stream] : next_in_stream_[last[stream]]) = op;
      last[stream] = op;
    }
  }

  Timeline finish() && {
    for (const OpId op : head_)
      if (op != kNone) throw std::runtime_error("deadlock: " + describe(program_, op) + " never starts");
    for (const double end : timeline_.end) timeline_.step_s = std::max(timeline_.step_s, end);
    timeline_.ranks = rank_times(program_, timeline_);
    return std::move(timeline_);
  }

 protected:
  // Returns an op that `op` still waits for, or kNone; `ready` is then the end of its last dependency.
  OpId blocker(OpId op, double& ready) const {
    ready = 0;
    for (const OpId needed : program_.dependencies(op)) {
      if (timeline_.end[needed] < 0) return needed;
      ready = std::max(ready, timeline_.end[needed]);
    }
    return kNone;
  }
  void wait(uint32_t stream, OpId op) {
    next_waiter_[stream] = first_waiter_[op];
    first_waiter_[op] = stream;
  }
  template <typename Wake>
  void wake_waiters(OpId op, Wake wake) {
    for (uint32_t stream = first_waiter_[op]; stream != kNone;) {
      const uint32_t next = next_waiter_[stream];
      wake(stream);
      stream = next;
    }
  }

  const Program& program_;
  std::span<const double> seconds_;
  Timeline timeline_;
  std::vector<OpId> next_in_stream_;    // by op
  std::vector<uint32_t> first_waiter_;  // by op: a stream
  std::vector<OpId> head_;              // by stream: its first op that has not ended
  std::vector<uint32_t> next_waiter_;   // by stream
};

// Without contention an op's end is known as soon as its dependencies' ends are: ops need not be processed in
// the order of time.
class PlainReplay : Replay {
 public:
  using Replay::Replay;

  Timeline run() && {
    std::vector<double> free_at(head_.size(), 0);
    std::vector<uint32_t> runnable;
    for (size_t stream = head_.size(); stream-- > 0;) runnable.push_back(static_cast<uint32_t>(stream));
    while (!runnable.empty()) {
      const uint32_t stream = runnable.back();
      runnable.pop_back();
      for (OpId op = head_[stream]; op != kNone; op = head_[stream]) {
        double ready = 0;
        if (const OpId needed = blocker(op, ready); needed != kNone) {
          wait(stream, needed);
          break;
        }
        timeline_.start[op] = std::max(ready, free_at[stream]);
        timeline_.end[op] = free_at[stream] = timeline_.start[op] + seconds_[op];
        wake_waiters(op, [&](uint32_t waiter) { runnable.push_back(waiter); });
        head_[stream] = next_in_stream_[op];
      }
    }
    return std::move(*this).finish();
  }
};

// The rank on which an op ends first: a tournament tree over all ranks, so that an update costs log(ranks).
class Tournament {
 public:
  explicit Tournament(size_t ranks) {
    while (leaves_ < ranks) leaves_ *= 2;
    time_.assign(leaves_, kNever);
    winner_.resize(2 * leaves_);
    for (uint32_t rank = 0; rank < leaves_; ++rank) winner_[leaves_ + rank] = rank;
    for (size_t node = leaves_; --node > 0;) winner_[node] = winner_[2 * node];
  }

  void set(uint32_t rank, double time) {
    time_[rank] = time;
    for (size_t node = (leaves_ + rank) / 2; node > 0; node /= 2) {
      const uint32_t left = winner_[2 * node], right = winner_[2 * node + 1];
      winner_[node] = time_[right] < time_[left] ? right : left;
    }
  }
  [[nodiscard]] uint32_t first() const { return winner_[1]; }
  [[nodiscard]] double time() const { return time_[winner_[1]]; }

 private:
  size_t leaves_ = 2;
  std::vector<double> time_;      // by rank
  std::vector<uint32_t> winner_;  // by node of the tree, the root at 1
};

// With contention the running ops on a rank's compute and tp streams slow each other down: rates change
// whenever one of the two becomes busy or idle, so ends must be processed in the order of time.
//
// Shared processors slow all ops alike, so they do not change which ends first: the simulation uses the time
// that would pass without sharing, and `clock_` is the time that passes.
class ContendedReplay : Replay {
 public:
  ContendedReplay(const Program& program, std::span<const double> seconds, const Contention& contention,
                  const Processors& processors)
      : Replay(program, seconds),
        processors_(processors),
        running_(program.streams.size()),
        ends_(program.schedule.pp()) {
    ranks_.resize(program.schedule.pp());
    std::vector<uint32_t> compute(ranks_.size(), kNone);
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
      running_[stream].rank = program.streams[stream].rank;
      ranks_[running_[stream].rank].streams.push_back(stream);
      if (program.streams[stream].kind == StreamKind::compute) compute[program.streams[stream].rank] = stream;
    }
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
      const ProgramStream& info = program.streams[stream];
      if (info.kind != StreamKind::tp || compute[info.rank] == kNone) continue;
      running_[stream].partner = compute[info.rank];
      running_[stream].contended_rate = contention.all_reduce;
      running_[compute[info.rank]].partner = stream;
      running_[compute[info.rank]].contended_rate = contention.compute;
    }
  }

  Timeline run() && {
    for (uint32_t stream = 0; stream < head_.size(); ++stream) try_start(stream, 0);
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) settle(rank);
    while (ends_.time() < kNever) end_op(ranks_[ends_.first()].first, ends_.time());
    return std::move(*this).finish();
  }

 private:
  // The state of a stream.
  struct Running {
    uint32_t rank = 0;
    uint32_t partner = kNone;   // the tp stream of a compute stream, and the other way round
    double contended_rate = 1;  // its share of full speed while the partner is busy
    bool busy = false;
    bool contends = true;  // its current op
    double left = 0;       // seconds of work, at full speed
    double rate = 1;       // its current share of full speed
    double since = 0;      // when `left` was true
    double end = kNever;   // of the current op, at the current rate
  };
  struct Rank {
    std::vector<uint32_t> streams;
    uint32_t first = kNone;  // the stream whose op ends first
  };

  // Starts the stream's next op if it is ready. `was_busy`: the stream ended an op at this moment, so that
  // starting another changes nothing for its partner.
  bool try_start(uint32_t stream, double now, bool was_busy = false) {
    const OpId op = head_[stream];
    if (op == kNone) return false;
    double ready = 0;
    if (const OpId needed = blocker(op, ready); needed != kNone) {
      wait(stream, needed);
      return false;
    }
    timeline_.start[op] = clock_;
    Running& running = running_[stream];
    running.busy = true;
    ++busy_;
    running.left = seconds_[op];
    const bool before = std::exchange(running.contends, program_.ops[op].contends);
    set_rate(running, now);
    if (!was_busy || before != running.contends) adjust(running.partner, now);
    return true;
  }

  void end_op(uint32_t stream, double now) {
    const OpId op = head_[stream];
    advance_clock(now);
    timeline_.end[op] = clock_;
    Running& running = running_[stream];
    running.busy = false;
    --busy_;
    running.end = kNever;
    head_[stream] = next_in_stream_[op];
    if (!try_start(stream, now, true)) adjust(running.partner, now);
    wake_waiters(op, [&](uint32_t waiter) {
      if (try_start(waiter, now) && running_[waiter].rank != running.rank) settle(running_[waiter].rank);
    });
    settle(running.rank);
  }

  void advance_clock(double now) {
    clock_ = processors_.rates.empty() ? now : clock_ + (now - now_) / speed();
    now_ = now;
  }

  // The rate factor of all running ops under shared processors.
  [[nodiscard]] double speed() const {
    const size_t processors = processors_.rates.size();
    const size_t workers = busy_ * processors_.per_op;
    if (workers <= processors) return processors_.rates[std::max<size_t>(workers, 1) - 1];
    return processors_.rates.back() * static_cast<double>(processors) / static_cast<double>(workers);
  }

  // The rate of `stream` changes because its partner becomes busy or idle.
  void adjust(uint32_t stream, double now) {
    if (stream == kNone || !running_[stream].busy) return;
    Running& running = running_[stream];
    running.left = std::max(0.0, running.left - (now - running.since) * running.rate);
    set_rate(running, now);
  }

  void set_rate(Running& running, double now) {
    const bool contended = running.partner != kNone && running_[running.partner].busy && running.contends &&
                           running_[running.partner].contends;
    running.since = now;
    running.rate = contended ? running.contended_rate : 1;
    running.end = now + running.left / running.rate;
  }

  // Call after ends on `rank` have changed.
  void settle(uint32_t rank) {
    Rank& here = ranks_[rank];
    double time = kNever;
    for (const uint32_t stream : here.streams) {
      if (running_[stream].end < time) {
        time = running_[stream].end;
        here.first = stream;
      }
    }
    ends_.set(rank, time);
  }

  const Processors& processors_;
  double now_ = 0, clock_ = 0;    // without and with shared processors
  size_t busy_ = 0;               // streams
  std::vector<Running> running_;  // by stream
  std::vector<Rank> ranks_;
  Tournament ends_;
};

}  // namespace

bool waited_for_own_all_reduce(const Program& program, const Timeline& timeline, OpId op) {
  double latest = -1;
  bool own = false;
  for (const OpId needed : program.dependencies(op)) {
    const ProgramStream& stream = program.stream_of(needed);
    if (!timeline.has(needed)) continue;
    const bool is_own = (stream.kind == StreamKind::tp || stream.kind == StreamKind::cp) &&
                        stream.rank == program.stream_of(op).rank;
    if (timeline.end[needed] > latest || (timeline.end[needed] == latest && is_own)) own = is_own;
    latest = std::max(latest, timeline.end[needed]);
  }
  return own;
}

std::vector<RankTime> rank_times(const Program& program, const Timeline& timeline) {
  std::vector<RankTime> ranks(program.schedule.pp());
  std::vector<double> before = timeline.begin;
  before.resize(ranks.size(), 0);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const ProgramStream& stream = program.stream_of(op);
    if (stream.kind != StreamKind::compute || !timeline.has(op)) continue;
    RankTime& rank = ranks[stream.rank];
    const double idle = timeline.start[op] - before[stream.rank];
    if (idle > 0)
      (waited_for_own_all_reduce(program, timeline, op) ? rank.tp_bubble_s : rank.pp_bubble_s) += idle;
    rank.compute_s += timeline.end[op] - timeline.start[op];
    before[stream.rank] = timeline.end[op];
  }
  for (size_t rank = 0; rank < before.size(); ++rank)
    ranks[rank].pp_bubble_s +=
        timeline.step_s + (timeline.begin.empty() ? 0 : timeline.begin[rank]) - before[rank];
  return ranks;
}

Timeline simulate(const Program& program, std::span<const double> seconds, const Contention& contention,
                  const Processors& processors) {
  if (contention.compute == 1 && contention.all_reduce == 1 && processors.rates.empty())
    return PlainReplay(program, seconds).run();
  return ContendedReplay(program, seconds, contention, processors).run();
}

namespace {

// The last of `steps` steps, without the ranks' times.
Timeline last_step(const Program& program, const Timeline& all, int steps) {
  Timeline last;
  for (size_t rank = 0; rank + 1 < program.rank_begin.size(); ++rank)
    last.begin.push_back(all.end[repeated(program, program.rank_begin[rank + 1] - 1, steps - 2, steps)]);
  const double first = *std::min_element(last.begin.begin(), last.begin.end());
  for (double& begin : last.begin) begin -= first;
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const OpId at = repeated(program, op, steps - 1, steps);
    last.start.push_back(all.start[at] - first);
    last.end.push_back(all.end[at] - first);
  }
  return last;
}

}  // namespace

Timeline simulate_repeated(const Program& program, std::span<const double> seconds,
                           const Contention& contention) {
  constexpr double kSame = 1e-9;  // relative: sums of the same numbers in another order
  for (int steps = 2;; steps *= 2) {
    const Program repetition = repeat(program, steps);
    std::vector<double> of_all(repetition.ops.size());
    for (OpId op = 0; op < program.ops.size(); ++op)
      for (int step = 0; step < steps; ++step) of_all[repeated(program, op, step, steps)] = seconds[op];
    Timeline last = last_step(program, simulate(repetition, of_all, contention), steps);
    double shortest = kNever;
    for (size_t rank = 0; rank + 1 < program.rank_begin.size(); ++rank) {
      const double took = last.end[program.rank_begin[rank + 1] - 1] - last.begin[rank];
      shortest = std::min(shortest, took);
      last.step_s = std::max(last.step_s, took);
    }
    if (last.step_s - shortest > kSame * last.step_s && steps < kMostSteps) continue;
    last.ranks = rank_times(program, last);
    return last;
  }
}

}  // namespace stp
