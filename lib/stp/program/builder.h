// Writes a Program op by op, for the parts of lower(). Private to this module.
#pragma once

#include <array>
#include <vector>

#include "stp/program/program.h"

namespace stp {

/// A dependency, while not all ops are known: an op, or an output that an op of any rank makes.
using Ref = uint32_t;
inline constexpr Ref kOutputBit = Ref{1} << 31;
inline constexpr Ref kNothing = ~Ref{0};

/// The ops issued last: in this block, and on the rank in the blocks before it.
struct LatestOps {
  Ref compute = kNothing, collective = kNothing;
  Ref rank_compute = kNothing, rank_collective = kNothing;
  Ref scatter = kNothing;  // the rank's latest reduce-scatter
};

/// A block and its ops.
struct WrittenBlock {
  Block block;
  OpId begin = 0, end = 0;
  uint32_t depends_begin = 0, depends_end = 0;
  LatestOps latest;        // behind it
  bool is_second = false;  // of its rank with its passes and chunks
};

/// Writes an op by begin_op(), depend() for each dependency, then add(); ranks and blocks in order.
class ProgramBuilder {
 public:
  /// `begun` has its schedule and options; the builder adds streams and ops.
  explicit ProgramBuilder(Program begun);

  Program program;
  int rank = 0, block = 0;  // the ops written now belong to them

  LatestOps latest;

  void begin_rank(int next);
  void begin_block(int next);
  void end_block();
  /// Writes the ops of block `to` as those of `from`, which differ in their microbatches alone.
  void copy(const WrittenBlock& from, const Block& to);
  /// Replaces each output by the ops that make it.
  [[nodiscard]] Program finish() &&;

  void begin_op() { program.depends_begin.push_back(static_cast<uint32_t>(program.depends.size())); }
  void depend(Ref ref) {
    if (ref != kNothing) program.depends.push_back(ref);
  }
  OpId add(const Op& op, uint32_t stream) {
    program.ops.push_back(op);
    program.on_stream.push_back(stream);
    return size() - 1;
  }
  /// Adds an op that works on the whole chunk of `action`.
  OpId add_of_chunk(OpKind kind, const Action& action, uint32_t stream, ValueId input = kNoValue,
                    ValueId output = kNoValue) {
    return add({.kind = kind,
                .pass = action.pass,
                .chunk = action.chunk,
                .microbatch = action.microbatch,
                .block = block,
                .input = input,
                .output = output},
               stream);
  }

  [[nodiscard]] OpId size() const { return static_cast<OpId>(program.ops.size()); }
  [[nodiscard]] int stages() const { return program.schedule.placement.stages(); }
  [[nodiscard]] bool is_first(int stage) const { return program.schedule.placement.is_first(stage); }
  [[nodiscard]] bool is_last(int stage) const { return program.schedule.placement.is_last(stage); }
  [[nodiscard]] int stage(const Action& action) const {
    return program.schedule.placement.stage(rank, action.chunk);
  }

  [[nodiscard]] uint32_t compute_stream() const { return 2 * rank; }
  [[nodiscard]] uint32_t tp_stream() const { return 2 * rank + 1; }
  uint32_t link_to(int receiver) { return stream(StreamKind::p2p, receiver); }
  /// Returns another stream of the rank, and makes it on first use.
  uint32_t stream(StreamKind kind, int peer = -1);

  /// The output of `stage` for a microbatch: its activation, or in the backward the gradient of its input.
  [[nodiscard]] Ref output_of(bool backward, int stage, int microbatch) const {
    const size_t index = (static_cast<size_t>(backward) * stages() + stage) * program.schedule.microbatches;
    return kOutputBit | static_cast<Ref>(index + microbatch);
  }
  [[nodiscard]] Ref output_of(const Action& action) const {
    return output_of(action.pass != Pass::F, stage(action), action.microbatch);
  }
  /// What an action waits for; W for nothing.
  [[nodiscard]] Ref input_of(const Action& action) const;
  /// The output that stands for all gradients of the first (0) or last (1) virtual stage's rank.
  [[nodiscard]] Ref gradients_of_end(int end) const { return kOutputBit | static_cast<Ref>(chains() + end); }
  /// The output of the norm transfer of `kind` from rank `from`.
  [[nodiscard]] Ref norm_of(OpKind kind, int from) const {
    const int ranks = program.schedule.pp();
    return kOutputBit | static_cast<Ref>(chains() + 2 + (kind == OpKind::norm_prefix ? 0 : ranks) + from);
  }
  /// The output of E, S or T of `rank`, or of all ranks together (kAllRanks).
  static constexpr int kAllRanks = -1;
  [[nodiscard]] Ref vocabulary_output(Pass pass, int of, int microbatch) const {
    const Schedule& all = program.schedule;
    const int number = pass == Pass::E ? 0 : pass == Pass::S ? 1 : 2;
    const size_t row = static_cast<size_t>(number) * (all.pp() + 1) + (of == kAllRanks ? all.pp() : of);
    return kOutputBit | static_cast<Ref>(chains() + 2 + 2 * static_cast<size_t>(all.pp()) +
                                         row * all.microbatches + microbatch);
  }
  /// Returns the first of `count` outputs, to be set by set_output().
  Ref new_outputs(size_t count) {
    outputs_.resize(outputs_.size() + count, {kNothing, kNothing});
    return kOutputBit | static_cast<Ref>(outputs_.size() - count);
  }
  /// Sets the ops or outputs that `output` stands for.
  void set_output(Ref output, const std::array<Ref, 2>& refs) { outputs_[output & ~kOutputBit] = refs; }

 private:
  [[nodiscard]] size_t chains() const {
    return 2 * static_cast<size_t>(stages()) * program.schedule.microbatches;
  }
  void resolve(Ref ref, OpId op, std::vector<OpId>& resolved);

  std::vector<std::array<Ref, 2>> outputs_;
  std::vector<OpId> resolved_for_;              // by output: the last op that depends on it
  std::vector<std::vector<uint32_t>> streams_;  // by rank: all but the first two
};

}  // namespace stp
