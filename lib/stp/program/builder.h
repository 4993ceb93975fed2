// How a Program is written, op by op, by the parts of lower(). Private to this module.
#pragma once

#include <array>
#include <vector>

#include "stp/program/program.h"

namespace stp {

/// A dependency before all ops are known: an op, or an output, which an op of any rank makes.
using Ref = uint32_t;
inline constexpr Ref kOutputBit = Ref{1} << 31;
inline constexpr Ref kNothing = ~Ref{0};

/// An op is written as begin_op(), its dependencies, then the op itself; ranks and blocks in their order.
class ProgramBuilder {
 public:
  /// `begun` has its schedule and options; streams and ops are made here.
  explicit ProgramBuilder(Program begun);

  Program program;
  int rank = 0, block = 0;  // those that ops are written for

  /// What was issued last: by the block, and by the rank in the blocks so far.
  struct Latest {
    Ref compute = kNothing, collective = kNothing;
    Ref rank_compute = kNothing, rank_collective = kNothing;
    Ref scatter = kNothing;  // the rank's latest reduce-scatter
  } latest;

  void begin_rank(int next);
  void begin_block(int next);
  void end_block();
  /// Replaces outputs by the ops that make them, now that all are known.
  [[nodiscard]] Program finish() &&;

  void begin_op() { program.depends_begin.push_back(static_cast<uint32_t>(program.depends.size())); }
  void depend(Ref ref) {
    if (ref != kNothing) program.depends.push_back(ref);
  }
  OpId add(const Op& op) {
    program.ops.push_back(op);
    return size() - 1;
  }
  /// An op of the whole chunk of an action.
  OpId add_of_chunk(OpKind kind, const Action& action, StreamKind of);

  [[nodiscard]] OpId size() const { return static_cast<OpId>(program.ops.size()); }
  [[nodiscard]] int stages() const { return program.schedule.placement.stages(); }
  [[nodiscard]] int stage(const Action& action) const {
    return program.schedule.placement.stage(rank, action.chunk);
  }

  [[nodiscard]] uint32_t compute_stream() const { return 2 * rank; }
  [[nodiscard]] uint32_t tp_stream() const { return 2 * rank + 1; }
  uint32_t link_to(int receiver) { return stream(StreamKind::p2p, receiver); }
  /// A stream of the rank other than these two, made when it is first used.
  uint32_t stream(StreamKind kind, int peer = -1);

  /// The output of `stage` for a microbatch: its activation, or, backward, its input's gradient.
  [[nodiscard]] Ref output_of(bool backward, int stage, int microbatch) const {
    const size_t index = (static_cast<size_t>(backward) * stages() + stage) * program.schedule.microbatches;
    return kOutputBit | static_cast<Ref>(index + microbatch);
  }
  /// When the rank of the first (0) or the last (1) virtual stage has all its gradients.
  [[nodiscard]] Ref gradients_of_end(int end) const { return kOutputBit | static_cast<Ref>(chains() + end); }
  /// What arrives by a rank's transfer of the gradients' norm.
  [[nodiscard]] Ref norm_of(OpKind kind, int from) const {
    const int ranks = program.schedule.pp();
    return kOutputBit | static_cast<Ref>(chains() + 2 + (kind == OpKind::norm_prefix ? 0 : ranks) + from);
  }
  /// Says what to wait for where an output is needed.
  void set_output(Ref output, const std::array<Ref, 2>& refs) { outputs_[output & ~kOutputBit] = refs; }

 private:
  [[nodiscard]] size_t chains() const {
    return 2 * static_cast<size_t>(stages()) * program.schedule.microbatches;
  }
  void resolve(Ref ref, OpId op, std::vector<OpId>& resolved);

  std::vector<std::array<Ref, 2>> outputs_;
  std::vector<OpId> resolved_for_;              // by output: the last op whose dependencies named it
  std::vector<std::vector<uint32_t>> streams_;  // by rank: besides the first two
};

}  // namespace stp
