// The engine goes on with one rank as far as it can, then with the next, and not from event to event over all
// ranks: the ops of a rank lie side by side in memory.
//
// Without contention an op's end is known as soon as those of its dependencies and of the op before it on its
// stream are. A visit gives times to a rank's ops in the order of issue, up to one that waits for another
// rank. It leaves a note there; the visit that brings the end calls the rank again. With many ranks in turn,
// the processor cannot foresee the next read, so each op prefetches what comes later on its rank.
//
// With contention the ops on a rank's streams `compute` and `tp`, its two lanes, slow each other down.
// Nothing else is coupled: a visit goes through the starts and ends on both lanes in the order of time, and
// gives other ops their times as above. If a lane waits for another rank, the visit goes on only to the
// horizon, the earliest time at which what it waits for may come: the time that rank has reached, plus the
// transfer. Where no rank can go on, the first event of all is safe, since nothing can come before it.
//
// Things that happen at one time happen in the order of their ranks, then of their streams. Only rounding
// depends on it: whether a lane was idle for no time at all.
#include "stp/simulate/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <utility>

#include "stp/program/program.h"

namespace stp {
namespace {

constexpr OpId kNoOp = ~OpId{0};
constexpr double kUnknown = -1;

// The dependency of an op that ended last. If several ended together, a collective of the op's own rank is
// taken.
struct Last {
  OpId op = kNoOp;
  double end = -1;
  bool is_own_collective = false;
};

Last last_dependency(const Program& program, const Timeline& timeline, OpId op) {
  Last last;
  for (const OpId needed : program.dependencies(op)) {
    if (!timeline.has(needed)) continue;
    const ProgramStream& stream = program.stream_of(needed);
    const double end = timeline.end[needed];
    const bool is_own = (stream.kind == StreamKind::tp || stream.kind == StreamKind::cp) &&
                        stream.rank == program.stream_of(op).rank;
    if (end > last.end || (end == last.end && is_own)) last = {needed, end, is_own};
  }
  return last;
}

// Adds an op to how its rank's compute stream spends the time; the op before it there ended at `before`.
void account(const Program& program, const Timeline& timeline, OpId op, double before, RankTime& rank) {
  const double idle = timeline.start[op] - before;
  if (idle > 0) {
    const double for_own = tp_bubble(program, timeline, op, before);
    rank.tp_bubble_s += for_own;
    rank.pp_bubble_s += idle - for_own;
  }
  rank.compute_s += timeline.end[op] - timeline.start[op];
}

class Engine {
 public:
  Engine(const Program& program, std::span<const double> seconds, const Contention& contention,
         bool contended)
      : program_(program),
        seconds_(seconds),
        contention_(contention),
        contended_(contended),
        streams_(program.streams.size() + 1),
        ranks_(program.schedule.pp()),
        events_(ranks_.size(), kNever) {
    timeline_.start.resize(program.ops.size());
    timeline_.end.assign(program.ops.size(), kUnknown);
    timeline_.ranks.resize(ranks_.size());
    for (uint32_t id = 0; id < ranks_.size(); ++id) {
      ranks_[id].next = program.rank_begin[id];
      ranks_[id].lanes.fill(&streams_.back());
      call(id);
    }
    for (uint32_t id = 0; id < program.streams.size(); ++id) {
      const ProgramStream& info = program.streams[id];
      Rank& rank = ranks_[streams_[id].rank = info.rank];
      streams_[id].kind = info.kind;
      if (streams_[id].is_lane()) rank.lanes[info.kind == StreamKind::tp] = &streams_[id];
      rank.streams.push_back(&streams_[id]);
    }
    if (contended) link_streams();
  }

  Timeline run() && {
    for (;;) {
      while (!called_.empty()) {
        const uint32_t id = called_.back();
        called_.pop_back();
        ranks_[id].called = false;
        if (contended_)
          visit_lanes(id);
        else
          visit(id);
      }
      const auto first = std::ranges::min_element(events_);
      if (*first == kNever) return std::move(*this).finish();
      visit_lanes(static_cast<uint32_t>(first - events_.begin()), true);
    }
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Stream {
    uint32_t rank = 0;
    StreamKind kind = StreamKind::p2p;
    double free_at = 0;  // the end of its last op so far
    // With contention:
    OpId next = kNoOp;       // the op that runs or comes next
    OpId needed = kNoOp;     // the next op waits for it
    OpId noted = kNoOp;      // the last op for which there was a note
    uint32_t owner = kNoOp;  // the rank of `needed`, unless that is on this rank's other lane
    OpId cause = kNoOp;      // the dependency of the next op that ended last
    double event = kNever;   // of a lane: when its op ends or the next can start, as far as known
    bool runs = false;       // a lane's op,
    bool contends = true;    // and contends
    bool undecided = false;  // a lane's op has ended; whether the next one starts at once is not known
    double left = 0;         // seconds of work of the op that runs, at full speed
    double rate = 1;         // its share of full speed
    double since = 0;        // when `left` was true

    [[nodiscard]] bool is_lane() const { return kind == StreamKind::compute || kind == StreamKind::tp; }
  };
  struct Rank {
    std::vector<Stream*> streams;
    std::array<Stream*, 2> lanes{};                // `compute` and `tp`
    std::vector<std::pair<OpId, uint32_t>> notes;  // an op of this rank, a rank that waits for it
    bool called = false;
    OpId next = 0;            // without contention: the first op without times
    double horizon = kNever;  // what it waits for comes not before
    double clock = 0;         // what comes from it and has not ended starts not before
  };

  [[nodiscard]] const Stream& stream_of(OpId op) const { return streams_[program_.on_stream[op]]; }
  [[nodiscard]] bool known(OpId op) const { return timeline_.end[op] >= 0; }

  [[gnu::always_inline]] void end(Stream& stream, OpId op, double time) {
    timeline_.end[op] = time;
    if (stream.kind == StreamKind::compute)
      account(program_, timeline_, op, stream.free_at, timeline_.ranks[stream.rank]);
    stream.free_at = time;
    ++ended_;
    constexpr OpId kAhead = 40;  // ops, for one of the next visits to the rank; a visit has about 30
    if (op % 8 == 0 && timeline_.end.size() - op > kAhead) fetch(op, kAhead);
  }
  // Brings near what the op so many after `op` needs. Inline, since gcc takes a function that only fetches
  // for one without effect.
  [[gnu::always_inline]] void fetch(OpId op, OpId ahead) {
    for (const auto* items : {&program_.on_stream, &program_.depends_begin})
      __builtin_prefetch(items->data() + op + ahead);
    if (contended_) __builtin_prefetch(next_in_stream_.data() + op + ahead);
    __builtin_prefetch(program_.depends.data() + program_.depends_begin[op] + ahead);
    __builtin_prefetch(seconds_.data() + op + ahead);
    for (const auto* times : {&timeline_.start, &timeline_.end})
      __builtin_prefetch(times->data() + op + ahead, 1);
  }
  void call(uint32_t id) {
    if (std::exchange(ranks_[id].called, true)) return;
    called_.push_back(id);
    // With many ranks, what was fetched for the visit has left the caches since.
    if (constexpr size_t kMany = 128; ranks_.size() <= kMany) [[likely]]
      return;
    const Rank& rank = ranks_[id];
    const OpId op = contended_ ? rank.lanes[0]->next : rank.next;
    if (op < timeline_.end.size()) fetch(op, 0);
    __builtin_prefetch(rank.lanes[1]);
    __builtin_prefetch(rank.notes.data());
  }
  // Calls the ranks that can go on since ops of `rank` have ended or its clock has moved.
  void leave(Rank& rank, double clock) {
    const bool moved = clock > std::exchange(rank.clock, clock);
    std::erase_if(rank.notes, [&](const auto& note) {
      const auto& [needed, waiting] = note;
      if (known(needed) || (moved && events_[waiting] < earliest(needed))) call(waiting);
      return known(needed);
    });
  }

  // ---- without contention ----

  void visit(uint32_t id) {
    Rank& rank = ranks_[id];
    const OpId last = program_.rank_begin[id + 1];
    OpId missing = kNoOp;
    for (OpId op = rank.next; op < last; rank.next = ++op) {
      Stream& stream = streams_[program_.on_stream[op]];
      double start = stream.free_at;
      for (const OpId needed : program_.dependencies(op)) {
        if (!known(needed)) missing = needed;
        start = std::max(start, timeline_.end[needed]);
      }
      if (missing != kNoOp) {
        ranks_[stream_of(missing).rank].notes.emplace_back(missing, id);
        break;
      }
      timeline_.start[op] = start;
      end(stream, op, start + seconds_[op]);
    }
    leave(rank, 0);
  }

  // ---- with contention ----

  void link_streams() {
    next_in_stream_.resize(program_.ops.size(), kNoOp);
    std::vector<OpId> latest(streams_.size(), kNoOp);
    for (OpId op = 0; op < program_.ops.size(); ++op) {
      const uint32_t stream = program_.on_stream[op];
      const OpId before = std::exchange(latest[stream], op);
      (before == kNoOp ? streams_[stream].next : next_in_stream_[before]) = op;
    }
  }

  // `is_first`: no rank has an earlier event.
  void visit_lanes(uint32_t id, bool is_first = false) {
    Rank& rank = ranks_[id];
    Stream &compute = *rank.lanes[0], &tp = *rank.lanes[1];
    for (catch_up(rank);; is_first = false) {
      const bool of_tp = tp.event < compute.event || (tp.event == compute.event && tp.event < kNever &&
                                                      order_of_event(tp) < order_of_event(compute));
      const bool waits = compute.owner != kNoOp || tp.owner != kNoOp;
      const double event = events_[id] = of_tp ? tp.event : compute.event;
      if (event < (waits && !is_first ? rank.horizon : kNever))
        of_tp ? happen(tp, compute) : happen(compute, tp);
      else if (!catch_up(rank))
        break;
    }
    for (Stream* each : rank.streams)
      if (each->owner != kNoOp && std::exchange(each->noted, each->needed) != each->needed)
        ranks_[each->owner].notes.emplace_back(each->needed, id);
    leave(rank, std::min(rank.horizon, events_[id]));
  }
  // What waits for `op` of another rank, which has not ended, waits at least until then.
  [[nodiscard]] double earliest(OpId op) const {
    return ranks_[stream_of(op).rank].clock + (stream_of(op).is_lane() ? 0 : seconds_[op]);
  }

  void look_at_horizon(const Stream& stream) {
    if (stream.owner == kNoOp || stream.owner == stream.rank) return;
    double& horizon = ranks_[stream.rank].horizon;
    horizon = std::min(horizon, earliest(stream.needed));
  }

  // Gives times to ops on no lane, as far as known, and looks again for what streams wait for. Returns
  // whether a lane has found it.
  bool catch_up(Rank& rank) {
    bool found = false;
    for (bool more = true; std::exchange(more, false);)
      for (Stream* each : rank.streams)
        while (!each->runs && (each->event == kNever || each->undecided) &&
               (each->needed == kNoOp || known(each->needed)) && find(*each)) {
          found |= each->is_lane();
          if (each->undecided) each->event = each->free_at;
          if (each->is_lane()) break;
          timeline_.start[each->next] = each->event;
          end(*each, each->next, std::exchange(each->event, kNever) + seconds_[each->next]);
          each->next = next_in_stream_[each->next];
          more = true;
        }
    rank.horizon = kNever;
    for (const Stream* each : rank.streams) look_at_horizon(*each);
    return found;
  }
  // Finds when the stream's next op can start, or what it waits for.
  bool find(Stream& stream) {
    stream.needed = stream.cause = kNoOp;
    stream.owner = kNoOp;
    if (stream.next == kNoOp) return false;
    double latest = kUnknown;
    for (const OpId needed : program_.dependencies(stream.next)) {
      const double end = timeline_.end[needed];
      if (end == kUnknown) {
        const Stream& of = stream_of(stream.needed = needed);
        if (!of.is_lane() || of.rank != stream.rank) stream.owner = of.rank;
        look_at_horizon(stream);
        return false;
      }
      if (end < latest || (end == latest && order(stream_of(needed)) <= order(stream_of(stream.cause))))
        continue;
      latest = end;
      stream.cause = needed;
    }
    stream.event = std::max(latest, stream.free_at);
    return true;
  }

  // The place of a stream's op among what ends at one time, and of a lane's event.
  using Order = std::pair<uint32_t, const Stream*>;
  static Order order(const Stream& stream) { return {stream.rank, &stream}; }
  [[nodiscard]] Order order_of_event(const Stream& lane) const {
    const bool own =
        lane.runs || lane.undecided || lane.cause == kNoOp || timeline_.end[lane.cause] < lane.event;
    return order(own ? lane : stream_of(lane.cause));
  }
  // Whether the lane's next op starts as soon as an op on `ended` ends.
  [[nodiscard]] bool starts_with(const Stream& lane, const Stream& ended) const {
    if (lane.runs || lane.event > ended.free_at) return false;
    if (lane.cause == kNoOp || order_of_event(lane) <= order(ended)) return true;
    return stream_of(lane.cause).is_lane() && stream_of(lane.cause).rank == lane.rank;
  }

  // The lane's op ends, or the next one starts.
  void happen(Stream& lane, Stream& partner) {
    const double now = lane.event;
    if (!lane.runs && !lane.undecided) return start(lane, partner, now);
    const OpId op = lane.next;
    if (lane.runs) {
      end(lane, op, now);
      lane.next = next_in_stream_[op];
    }
    lane.runs = false;
    lane.event = kNever;
    find(lane);
    if (partner.needed == op) find(partner);
    const bool decided = std::exchange(lane.undecided, false);
    Rank& rank = ranks_[lane.rank];
    if (lane.owner == lane.rank || partner.owner == lane.rank) catch_up(rank);
    lane.undecided = !decided && partner.runs && lane.owner != kNoOp && now >= rank.horizon;
    if (lane.undecided)
      lane.event = now;
    else if (starts_with(lane, lane))
      start(lane, partner, now, true);
    else
      adjust(partner, lane, now);
    if (starts_with(partner, lane)) start(partner, lane, now);
  }
  // `was_busy`: the lane has ended an op at this moment, so that another changes nothing for its partner.
  void start(Stream& lane, Stream& partner, double now, bool was_busy = false) {
    timeline_.start[lane.next] = now;
    lane.runs = true;
    lane.left = seconds_[lane.next];
    const bool before = std::exchange(lane.contends, program_.contends(lane.next));
    set_rate(lane, partner, now);
    if (!was_busy || before != lane.contends) adjust(partner, lane, now);
  }
  // The rate of `lane` changes because its partner becomes busy or idle.
  void adjust(Stream& lane, const Stream& partner, double now) {
    if (!lane.runs) return;
    lane.left = std::max(0.0, lane.left - (now - lane.since) * lane.rate);
    set_rate(lane, partner, now);
  }
  void set_rate(Stream& lane, const Stream& partner, double now) {
    lane.since = now;
    const double share = lane.kind == StreamKind::tp ? contention_.all_reduce : contention_.compute;
    lane.rate = partner.runs && lane.contends && partner.contends ? share : 1;
    lane.event = now + lane.left / lane.rate;
  }

  Timeline finish() && {
    if (const auto& ends = timeline_.end; ended_ < ends.size()) {
      const auto stuck = static_cast<OpId>(std::ranges::find(ends, kUnknown) - ends.begin());
      throw std::runtime_error("deadlock: " + describe(program_, stuck) + " never starts");
    }
    for (const Stream& stream : streams_) timeline_.step_s = std::max(timeline_.step_s, stream.free_at);
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      timeline_.ranks[rank].pp_bubble_s += timeline_.step_s - ranks_[rank].lanes[0]->free_at;
    return std::move(timeline_);
  }

  const Program& program_;
  std::span<const double> seconds_;
  const Contention contention_;
  const bool contended_;
  Timeline timeline_;
  size_t ended_ = 0;
  std::vector<Stream> streams_;  // the last one stands for lanes that a rank lacks
  std::vector<Rank> ranks_;
  std::vector<double> events_;  // by rank: the first on its lanes
  std::vector<uint32_t> called_;
  std::vector<OpId> next_in_stream_;  // by op; with contention
};

// Makes the times of `timeline` those that pass on shared processors. They slow all ops alike, so they do not
// change what comes before what.
void share(const Program& program, Timeline& timeline, const Processors& processors) {
  const auto speed = [&](size_t busy) {
    const size_t count = processors.rates.size(), workers = busy * processors.per_op;
    if (workers <= count) return processors.rates[std::max<size_t>(workers, 1) - 1];
    return processors.rates.back() * static_cast<double>(count) / static_cast<double>(workers);
  };
  std::vector<std::pair<double*, int>> events;  // a time, and the change of the number of ops that run
  for (double& start : timeline.start) events.emplace_back(&start, 1);
  for (double& end : timeline.end) events.emplace_back(&end, -1);
  std::ranges::sort(events, {}, [](const auto& event) { return *event.first; });
  double now = 0, clock = 0;
  size_t busy = 0;
  for (const auto& [time, change] : events) {
    clock += (*time - now) / speed(busy);
    now = std::exchange(*time, clock);
    busy += change;
  }
  timeline.step_s = clock;
  timeline.ranks = rank_times(program, timeline);
}

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

double tp_bubble(const Program& program, const Timeline& timeline, OpId op, double before) {
  double idle = 0, until = timeline.start[op];
  Last last = last_dependency(program, timeline, op);
  while (last.is_own_collective && until > before) {
    const Last needed = last_dependency(program, timeline, last.op);
    const double ready = std::clamp(needed.end, before, until);
    idle += until - ready;
    until = ready;
    last = needed;
  }
  return idle;
}

std::vector<RankTime> rank_times(const Program& program, const Timeline& timeline) {
  std::vector<RankTime> ranks(program.schedule.pp());
  std::vector<double> before = timeline.begin;
  before.resize(ranks.size(), 0);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const ProgramStream& stream = program.stream_of(op);
    if (stream.kind != StreamKind::compute || !timeline.has(op)) continue;
    account(program, timeline, op, std::exchange(before[stream.rank], timeline.end[op]), ranks[stream.rank]);
  }
  for (size_t rank = 0; rank < before.size(); ++rank)
    ranks[rank].pp_bubble_s +=
        timeline.step_s + (timeline.begin.empty() ? 0 : timeline.begin[rank]) - before[rank];
  return ranks;
}

Timeline simulate(const Program& program, std::span<const double> seconds, const Contention& contention,
                  const Processors& processors) {
  const bool shared = !processors.rates.empty();
  const bool contended = contention.compute != 1 || contention.all_reduce != 1 || shared;
  Timeline timeline = Engine(program, seconds, contention, contended).run();
  if (shared) share(program, timeline, processors);
  return timeline;
}

Timeline simulate_repeated(const Program& program, std::span<const double> seconds,
                           const Contention& contention) {
  constexpr double kSame = 1e-9;  // relative: sums of the same numbers in another order
  for (int steps = 2;; steps *= 2) {
    const Program repetition = repeat(program, steps);
    std::vector<double> of_all(repetition.ops.size());
    for (OpId op = 0; op < program.ops.size(); ++op)
      for (int step = 0; step < steps; ++step) of_all[repeated(program, op, step, steps)] = seconds[op];
    Timeline last = last_step(program, simulate(repetition, of_all, contention), steps);
    double shortest = std::numeric_limits<double>::infinity();
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
