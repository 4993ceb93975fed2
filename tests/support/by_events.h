// The simulation from event to event: whatever ends first of all ranks is next. It is slow and plain, and
// what lib/stp/simulate is held against.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stp/simulate/simulate.h"

namespace stp::by_events {

constexpr OpId kNone = ~OpId{0};
constexpr double kNever = std::numeric_limits<double>::infinity();

// The head of every stream and the waiting streams. A stream waits for at most one op
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
      const uint32_t stream = program.on_stream[op];
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
        ranks_(program.schedule.pp()) {
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
    for (;;) {
      const auto first = std::ranges::min_element(ranks_, {}, &Rank::end);
      if (first->end == kNever) break;
      end_op(first->first, first->end);
    }
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
    double end = kNever;
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
    const bool before = std::exchange(running.contends, program_.contends(op));
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
    here.end = kNever;
    for (const uint32_t stream : here.streams) {
      if (running_[stream].end < here.end) {
        here.end = running_[stream].end;
        here.first = stream;
      }
    }
  }

  const Processors& processors_;
  double now_ = 0, clock_ = 0;    // without and with shared processors
  size_t busy_ = 0;               // streams
  std::vector<Running> running_;  // by stream
  std::vector<Rank> ranks_;
};

inline Timeline simulate(const Program& program, std::span<const double> seconds,
                         const Contention& contention = {}, const Processors& processors = {}) {
  if (contention.compute == 1 && contention.all_reduce == 1 && processors.rates.empty())
    return PlainReplay(program, seconds).run();
  return ContendedReplay(program, seconds, contention, processors).run();
}

}  // namespace stp::by_events
