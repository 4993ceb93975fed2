// The simulation from event to event: whatever ends first of all ranks is next. It is slow and plain, and
// what lib/stp/simulate is held against, to the last bit.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stp/simulate/simulate.h"

namespace stp::by_events {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr double kNever = std::numeric_limits<double>::infinity();

// The running ops on a rank's compute and tp streams slow each other down: rates change whenever one of the
// two becomes busy or idle.
//
// Shared processors slow all ops alike, so they do not change which ends first: the simulation uses the time
// that would pass without sharing, and `clock_` is the time that passes.
class Replay {
 public:
  Replay(const Program& program, std::span<const double> seconds, const Contention& contention,
         const Processors& processors)
      : program_(program), seconds_(seconds), processors_(processors), streams_(program.streams.size()) {
    timeline_.start.assign(program.ops.size(), -1);
    timeline_.end.assign(program.ops.size(), -1);
    for (OpId op = 0; op < program.ops.size(); ++op) streams_[program.on_stream[op]].ops.push_back(op);
    if (contention.compute == 1 && contention.all_reduce == 1 && processors.rates.empty()) return;
    for (uint32_t one = 0; one < streams_.size(); ++one)
      for (uint32_t other = 0; other < streams_.size(); ++other)
        if (kind(one) == StreamKind::compute && kind(other) == StreamKind::tp &&
            program.streams[one].rank == program.streams[other].rank) {
          streams_[one].partner = other;
          streams_[one].contended_rate = contention.compute;
          streams_[other].partner = one;
          streams_[other].contended_rate = contention.all_reduce;
        }
  }

  Timeline run() && {
    start_what_can(0);
    for (;;) {
      const auto first = std::ranges::min_element(streams_, {}, &Stream::end);
      if (first == streams_.end() || first->end == kNever) break;
      end_op(*first, first->end);
    }
    for (const Stream& stream : streams_)
      if (stream.next < stream.ops.size())
        throw std::runtime_error("deadlock: " + describe(program_, stream.ops[stream.next]) +
                                 " never starts");
    for (const double end : timeline_.end) timeline_.step_s = std::max(timeline_.step_s, end);
    timeline_.ranks = rank_times(program_, timeline_);
    return std::move(timeline_);
  }

 private:
  struct Stream {
    std::vector<OpId> ops;
    size_t next = 0;            // in `ops`: the first that has not ended
    uint32_t partner = kNone;   // the tp stream of a compute stream, and the other way round
    double contended_rate = 1;  // its share of full speed while the partner is busy
    bool busy = false;
    bool contends = true;  // its current op
    double left = 0;       // seconds of work, at full speed
    double rate = 1;       // its current share of full speed
    double since = 0;      // when `left` was true
    double end = kNever;   // of the current op, at the current rate
  };

  [[nodiscard]] StreamKind kind(uint32_t stream) const { return program_.streams[stream].kind; }

  // Starts the stream's next op if it is ready. `was_busy`: the stream ended an op at this moment, so that
  // starting another changes nothing for its partner.
  bool try_start(Stream& stream, double now, bool was_busy = false) {
    if (stream.busy || stream.next == stream.ops.size()) return false;
    const OpId op = stream.ops[stream.next];
    for (const OpId needed : program_.dependencies(op))
      if (timeline_.end[needed] < 0) return false;
    timeline_.start[op] = clock_;
    stream.busy = true;
    ++busy_;
    stream.left = seconds_[op];
    const bool before = std::exchange(stream.contends, program_.contends(op));
    set_rate(stream, now);
    if (!was_busy || before != stream.contends) adjust(stream.partner, now);
    return true;
  }

  void start_what_can(double now) {
    for (Stream& stream : streams_) try_start(stream, now);
  }

  void end_op(Stream& stream, double now) {
    clock_ = processors_.rates.empty() ? now : clock_ + (now - now_) / speed();
    now_ = now;
    timeline_.end[stream.ops[stream.next++]] = clock_;
    stream.busy = false;
    --busy_;
    stream.end = kNever;
    if (!try_start(stream, now, true)) adjust(stream.partner, now);
    start_what_can(now);
  }

  // The rate factor of all running ops under shared processors.
  [[nodiscard]] double speed() const {
    const size_t processors = processors_.rates.size(), workers = busy_ * processors_.per_op;
    if (workers <= processors) return processors_.rates[std::max<size_t>(workers, 1) - 1];
    return processors_.rates.back() * static_cast<double>(processors) / static_cast<double>(workers);
  }

  // The rate of a stream changes because its partner becomes busy or idle.
  void adjust(uint32_t index, double now) {
    if (index == kNone || !streams_[index].busy) return;
    Stream& stream = streams_[index];
    stream.left = std::max(0.0, stream.left - (now - stream.since) * stream.rate);
    set_rate(stream, now);
  }

  void set_rate(Stream& stream, double now) const {
    const bool contended = stream.partner != kNone && streams_[stream.partner].busy && stream.contends &&
                           streams_[stream.partner].contends;
    stream.since = now;
    stream.rate = contended ? stream.contended_rate : 1;
    stream.end = now + stream.left / stream.rate;
  }

  const Program& program_;
  std::span<const double> seconds_;
  const Processors& processors_;
  std::vector<Stream> streams_;
  Timeline timeline_;
  double now_ = 0, clock_ = 0;  // without and with shared processors
  size_t busy_ = 0;             // streams
};

inline Timeline simulate(const Program& program, std::span<const double> seconds,
                         const Contention& contention = {}, const Processors& processors = {}) {
  return Replay(program, seconds, contention, processors).run();
}

}  // namespace stp::by_events
