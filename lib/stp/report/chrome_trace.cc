#include "stp/report/chrome_trace.h"

#include <algorithm>
#include <cmath>

#include "stp/base/error.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

class Writer {
 public:
  Writer(std::ostream& out, const Program& program, const Timeline& timeline, int ends)
      : out_(out), program_(program), timeline_(timeline), ends_(ends) {
    // Threads are numbered per rank from 1, since Perfetto takes thread 0 for the idle task.
    std::vector<int> streams(program.schedule.pp(), 0);
    for (const ProgramStream& stream : program.streams) threads_.push_back(++streams[stream.rank]);
  }

  void write(const std::string& title, const std::string& time_unit) && {
    out_ << "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"schedule\":" << json_text(program_.schedule.name)
         << ",\"microbatches\":" << program_.schedule.microbatches << ",\"title\":" << json_text(title)
         << ",\"time_unit\":" << json_text(time_unit);
    if (ends_ > 0)
      out_ << ",\"left_out\":\"microbatches " << ends_ << " to " << program_.schedule.microbatches - ends_ - 1
           << "\"";
    out_ << "},\"traceEvents\":[";
    names();
    for (int rank = 0; rank < program_.schedule.pp(); ++rank) write_rank(rank);
    out_ << "\n]}\n";
  }

 private:
  std::ostream& event() {
    out_ << (first_ ? "\n" : ",\n");
    first_ = false;
    return out_;
  }

  void names() {
    for (int rank = 0; rank < program_.schedule.pp(); ++rank) {
      metadata("process_name", rank, 0, "\"name\":\"rank " + std::to_string(rank) + "\"");
      metadata("process_sort_index", rank, 0, "\"sort_index\":" + std::to_string(rank));
    }
    for (size_t i = 0; i < threads_.size(); ++i) {
      const ProgramStream& stream = program_.streams[i];
      std::string name = to_string(stream.kind);
      if (stream.kind == StreamKind::p2p) name += " to rank " + std::to_string(stream.peer);
      metadata("thread_name", stream.rank, threads_[i], "\"name\":\"" + name + "\"");
      metadata("thread_sort_index", stream.rank, threads_[i],
               "\"sort_index\":" + std::to_string(threads_[i]));
    }
  }
  void metadata(const char* what, int rank, int thread, const std::string& args) {
    event() << R"({"ph":"M","name":")" << what << "\",\"pid\":" << rank << ",\"tid\":" << thread
            << ",\"args\":{" << args << "}}";
  }

  // Whole nanoseconds: rounding errors must not make a slice overlap its neighbour.
  static int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
  static std::string microseconds(int64_t nanoseconds) {
    const std::string rest = std::to_string(nanoseconds % 1000);
    return std::to_string(nanoseconds / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
  }

  void slice(const std::string& name, const std::string& category, uint32_t stream, double start, double end,
             const std::string& args) {
    const int64_t from = nanoseconds(start);
    event() << "{\"ph\":\"X\",\"name\":\"" << name << "\",\"cat\":\"" << category
            << "\",\"pid\":" << program_.streams[stream].rank << ",\"tid\":" << threads_[stream]
            << ",\"ts\":" << microseconds(from) << ",\"dur\":" << microseconds(nanoseconds(end) - from)
            << ",\"args\":{" << args << "}}";
  }

  // Whether the op's block is written: one of its actions has a microbatch at an end of the step.
  [[nodiscard]] bool is_written(int rank, const Op& op) const {
    if (ends_ == 0 || op.block < 0) return true;
    return std::ranges::any_of(program_.schedule.ranks[rank][op.block].actions(), [&](const Action& action) {
      return action.microbatch < ends_ || action.microbatch >= program_.schedule.microbatches - ends_;
    });
  }

  void write_rank(int rank) {
    int32_t block = -1;
    double computed_until = timeline_.begin.empty() ? 0 : timeline_.begin[rank];
    for (OpId op = program_.rank_begin[rank]; op < program_.rank_begin[rank + 1]; ++op) {
      if (!timeline_.has(op)) continue;
      if (program_.ops[op].block != block) {
        block = program_.ops[op].block;
        if (block >= 0 && is_written(rank, program_.ops[op])) write_block(rank, op);
      }
      const bool compute = program_.stream_of(op).kind == StreamKind::compute;
      const double waited = compute ? tp_bubble(program_, timeline_, op, computed_until) : 0;
      if (is_written(rank, program_.ops[op])) write_op(rank, op, waited > 0 ? wait(op, waited) : "");
      write_arrows(rank, op);
      if (compute) computed_until = timeline_.end[op];
    }
  }

  [[nodiscard]] std::string wait(OpId op, double seconds) const {
    return "\"waited_for\":\"" + waited_for(op) + "\",\"tp_bubble\":" + microseconds(nanoseconds(seconds));
  }
  // Of a unit's parts, only the first op may wait for an all-reduce or its replacement.
  [[nodiscard]] std::string waited_for(OpId id) const {
    const Op& op = program_.ops[id];
    if (op.part == UnitPart::core || op.part == UnitPart::after)
      return program_.strategy.exchanges_heads() ? "all-to-all" : "key-value exchange";
    if (op.part == UnitPart::before && op.step > 0) return "row exchange";
    for (const OpId needed : program_.dependencies(id))
      if (is_collective(program_.ops[needed].kind)) return collective_name(program_.ops[needed].kind);
    return "all-reduce";
  }

  // Writes the slice around the compute of the block that begins at `first`. Viewers nest slices of a thread
  // by their times; of equal slices the first is the outer.
  void write_block(int rank, OpId first) {
    const int32_t block = program_.ops[first].block;
    double start = 0, end = -1;
    uint32_t stream = 0;
    for (OpId op = first; op < program_.rank_begin[rank + 1] && program_.ops[op].block == block; ++op) {
      if (program_.stream_of(op).kind != StreamKind::compute) continue;
      if (end < 0) start = timeline_.start[op];
      end = timeline_.end[op];
      stream = program_.on_stream[op];
    }
    if (end >= 0) slice(to_string(program_.schedule.ranks[rank][block]), "block", stream, start, end, "");
  }

  void write_op(int rank, OpId id, const std::string& waited) {
    const Op& op = program_.ops[id];
    const auto slice_of_op = [&](const std::string& name, const std::string& args) {
      slice(name, to_string(program_.stream_of(id).kind), program_.on_stream[id], timeline_.start[id],
            timeline_.end[id], args);
    };
    const std::string name = name_in_action(op);
    if (name.empty()) return slice_of_op(describe_op(program_, id), waited);
    const std::string action = to_string(Action{op.pass, op.chunk, op.microbatch});
    std::string args = "\"action\":\"" + action + "\",\"block\":\"" +
                       to_string(program_.schedule.ranks[rank][op.block]) + "\"" +
                       (waited.empty() ? "" : "," + waited);
    if (op.kind == OpKind::transfer)
      args += ",\"to\":" + std::to_string(program_.stream_of(id).peer) +
              ",\"tensors\":" + std::to_string(op.tensors());
    else
      args += ",\"layer\":" + std::to_string(op.layer) + ",\"unit\":\"" + to_string(op.unit) + "\"";
    slice_of_op(name + " " + action, args);
  }
  // The name of an op of an action, without the action's name; "" for other ops.
  static std::string name_in_action(const Op& op) {
    if (op.kind == OpKind::compute) return to_string(op.unit, op.unit_pass) + suffix(op.part);
    if (op.kind == OpKind::weight_gradients) return to_string(op.unit) + ".W";
    if (op.kind == OpKind::exchange) return exchange_name(op);
    if (is_collective(op.kind)) return collective_name(op.kind) + " " + to_string(op.unit, op.unit_pass);
    return op.kind == OpKind::transfer ? "send" : "";
  }

  // Writes one arrow for each transfer that `consumer` waits for.
  void write_arrows(int rank, OpId consumer) {
    if (!is_written(rank, program_.ops[consumer])) return;
    for (const OpId transfer : program_.dependencies(consumer)) {
      if (program_.ops[transfer].kind != OpKind::transfer ||
          program_.stream_of(consumer).kind == StreamKind::p2p || !timeline_.has(transfer) ||
          !is_written(program_.stream_of(transfer).rank, program_.ops[transfer]))
        continue;
      ++arrows_;
      arrow("\"s\"", transfer);
      arrow("\"f\",\"bp\":\"e\"", consumer);
    }
  }
  void arrow(const char* phase, OpId at) {
    event() << "{\"ph\":" << phase << ",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":" << arrows_
            << ",\"pid\":" << program_.stream_of(at).rank << ",\"tid\":" << threads_[program_.on_stream[at]]
            << ",\"ts\":" << microseconds(nanoseconds(timeline_.start[at])) << "}";
  }

  std::ostream& out_;
  const Program& program_;
  const Timeline& timeline_;
  int ends_;
  std::vector<int> threads_;  // by stream
  bool first_ = true;
  int64_t arrows_ = 0;
};

}  // namespace

int microbatches_of_short_trace(const Program& program) {
  constexpr size_t kOps = 20000;  // about 250 bytes each
  const int microbatches = program.schedule.microbatches;
  const size_t of_each = std::max(program.ops.size() / microbatches, size_t{1});
  const int ends = std::max(static_cast<int>(kOps / of_each / 2), 4);
  return 2 * ends < microbatches ? ends : 0;
}

void write_chrome_trace(std::ostream& out, const Program& program, const Timeline& timeline,
                        const std::string& title, const std::string& time_unit, int ends) {
  constexpr double kLongest = 9e9;  // seconds: in nanoseconds they fit 64 bits
  if (timeline.step_s > kLongest)
    throw InputError("", "costs", "the step takes more than 9e9 s, too long for a trace in nanoseconds",
                     "use smaller costs");
  Writer(out, program, timeline, ends).write(title, time_unit);
}

}  // namespace stp
