// The Program: per rank, a list of ops on named in-order streams, with dependencies. The simulator and the
// executor run it. It has no times. docs/architecture.md, section 5, defines its meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stp/model/partition.h"
#include "stp/model/unit.h"
#include "stp/model/work.h"
#include "stp/schedule/vocabulary.h"

namespace stp {

/// The in-order streams of a rank. A p2p stream is one direction between two ranks.
enum class StreamKind : uint8_t { compute, tp, p2p, dp, cp, d2h, h2d, vocabulary };
std::string to_string(StreamKind kind);

struct ProgramStream {
  StreamKind kind;
  int rank;  // the owner; the sender of a p2p stream
  int peer;  // the receiver of a p2p stream; else -1
};

enum class OpKind : uint8_t {
  compute,           // one pass of one unit of one layer
  weight_gradients,  // both parts, W_early and W_late, of one unit of one layer
  all_reduce,        // sums the unit's output (F) or its input's gradient (I) over the tensor-parallel group
  reduce_scatter,    // replaces all_reduce with sequence parallelism: each rank gets its share of the rows
  all_gather,        // with sequence parallelism, before `unit_pass` of the unit: gathers its input
  exchange,          // among the context-parallel or tensor-parallel ranks of a unit
  transfer,          // sends a chunk's output to the rank that waits for it
  gradient_reduce,   // all-reduces a chunk's or bucket's gradients over all ranks that hold the chunk
  gradient_scatter,  // replaces gradient_reduce with ZeRO-1: a reduce-scatter, each rank gets its share
  weight_gather,     // with ZeRO-1, all-gathers the weights of a chunk or bucket before its first forward
  embedding_reduce,  // sums tied embeddings' gradients of the first and last virtual stage's ranks
  pipeline_reduce,   // sums the gradients of a rank's chunks with those of their copies in another pipeline
  gradient_norm,     // with post-validation: the squared norm of a pipeline rank's gradients
  norm_prefix,       // sends the next rank the sum of these squares so far
  norm_total,        // sends the rank before the last step's sum over all ranks
  optimizer,         // updates the weights of a rank's chunks, or this replica's share of them
  offload,           // copies saved tensors of a chunk and microbatch to the host, after their forward
  reload,            // copies them back to the device, before their backward
  // Of all pipeline ranks, in the list of one, with vocabulary parallelism:
  vocabulary_broadcast,  // gives all ranks the last stage's output (F) or the gradient of the first's input
  vocabulary_reduce,     // sums up what all ranks' E or T made, and S with one barrier; else S's statistics
};

/// Whether the op is a collective of the tensor-parallel group.
constexpr bool is_collective(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::all_gather;
}
/// Whether the op is a collective on a chunk's parameters, of all ranks that hold the chunk.
constexpr bool is_of_replicas(OpKind kind) {
  return kind == OpKind::gradient_reduce || kind == OpKind::gradient_scatter || kind == OpKind::weight_gather;
}
/// Whether the op is a collective of all pipeline ranks.
constexpr bool is_of_all_stages(OpKind kind) {
  return kind == OpKind::vocabulary_broadcast || kind == OpKind::vocabulary_reduce;
}
/// Whether the op copies between device and host.
constexpr bool is_host_copy(OpKind kind) { return kind == OpKind::offload || kind == OpKind::reload; }
/// Whether the op sends a number of the gradients' norm to another rank.
constexpr bool is_norm_transfer(OpKind kind) {
  return kind == OpKind::norm_prefix || kind == OpKind::norm_total;
}
/// "all-reduce", "reduce-scatter" or "all-gather".
std::string collective_name(OpKind kind);

/// The tensor that a chain passes from op to op and at its end to the next chain: an activation (forward), a
/// gradient (backward), or an activation that a backward recomputes. Each has one number per virtual stage
/// and microbatch (Program::value()).
using ValueId = uint32_t;
inline constexpr ValueId kNoValue = ~ValueId{0};
enum class ValueKind : uint8_t { activation, gradient, recomputed };

struct Op {
  OpKind kind;
  Unit unit;           // for compute, weight_gradients, collectives and exchanges
  UnitPass unit_pass;  // of compute; F or I of a collective, W_late of an embedding's all-gather
  Pass pass;           // the pass of its action
  int16_t chunk;
  int16_t layer;     // within the chunk, in the order of the forward
  int16_t step = 0;  // from 0 within a part; from 1 for exchanges; the bucket for reductions of gradients and
                     // gathers of weights
  UnitPart part = UnitPart::whole;  // for F and I of a unit that Program::strategy divides, and for a
                                    // reduce-scatter of the output of a step of `after`
  Exchange exchange = {};           // what an exchange moves
  int32_t microbatch;
  int32_t block;  // index of the block in its rank's list; -1: none (optimizer)
  /// The values that the op reads and makes. They may be the same: along a chain each op changes the chain's
  /// value. A transfer carries one value, or two if the transfers of two microbatches are merged (`input` and
  /// `output`). The values have the same numbers on the other rank.
  ValueId input = kNoValue, output = kNoValue;

  /// Whether the op is a forward that a backward recomputes.
  [[nodiscard]] bool recomputed() const { return unit_pass == UnitPass::F && is_backward(pass); }
  /// The number of tensors of a transfer.
  [[nodiscard]] int tensors() const { return output == kNoValue ? 1 : 2; }
  /// With TpOverlap::megatron, whether GEMMs of the op's unit hide it.
  [[nodiscard]] bool hidden() const {
    return (kind == OpKind::exchange && exchange == Exchange::rows) ||
           (kind == OpKind::reduce_scatter &&
            (part != UnitPart::whole || (pass == Pass::B && unit_pass == UnitPass::I)));
  }
};

using OpId = uint32_t;

struct Program {
  Schedule schedule;
  Vocabulary vocabulary = vocabulary_of(schedule);  // of `schedule`, which stays as it is
  std::vector<int> layers_per_stage;
  Strategy strategy;                  // `zero` only where gradients are reduced
  int vision_layers = 0;              // layers of the vision encoder on the first virtual stage
  std::vector<Bucket> first_buckets;  // of a first virtual stage: empty or at least two; other stages have
                                      // none
  std::vector<ProgramStream> streams;
  std::vector<Op> ops;              // by rank, each in the order of issue
  std::vector<uint32_t> on_stream;  // by op: index into `streams`
  std::vector<OpId> rank_begin;     // p + 1 entries: rank r issues ops [rank_begin[r], rank_begin[r + 1])
  std::vector<OpId> depends_begin;  // ops + 1 entries into `depends`
  std::vector<OpId> depends;        // dependencies besides the op before it on its stream

  /// How many pipeline ranks share the head and the embedding; 1: each is whole.
  [[nodiscard]] int vocabulary_ranks() const { return vocabulary == Vocabulary::whole ? 1 : schedule.pp(); }
  /// Whether a virtual stage's chunk has the embedding, or the head; chunk 0 of each rank that shares them.
  [[nodiscard]] bool has_embedding(int stage) const {
    return has_end(stage, schedule.placement.is_first(stage));
  }
  [[nodiscard]] bool has_head(int stage) const { return has_end(stage, schedule.placement.is_last(stage)); }
  [[nodiscard]] std::span<const OpId> dependencies(OpId op) const {
    return {depends.data() + depends_begin[op], depends.data() + depends_begin[op + 1]};
  }
  [[nodiscard]] const ProgramStream& stream_of(OpId op) const { return streams[on_stream[op]]; }
  /// Whether the op contends: two such ops on a rank's `compute` and `tp` streams slow each other down while
  /// they overlap. What TpOverlap::megatron hides does not: copy engines exchange rows, and SMs are set aside
  /// for sums, for which the GEMMs' costs account (lib/stp/cost).
  [[nodiscard]] bool contends(OpId op) const { return !strategy.overlaps() || !ops[op].hidden(); }
  /// Whether `op` frees the device memory that its dependency `needed` offloads.
  [[nodiscard]] bool frees(OpId op, OpId needed) const {
    return ops[needed].kind == OpKind::offload && !is_host_copy(ops[op].kind);
  }
  /// The buckets of a virtual stage's chunk. Empty: one bucket holds the whole chunk.
  [[nodiscard]] std::span<const Bucket> buckets(int stage) const {
    return schedule.placement.is_first(stage) ? std::span<const Bucket>(first_buckets)
                                              : std::span<const Bucket>();
  }
  /// The virtual stage that an op works for; -1 for the optimizer and the gradients' norm.
  [[nodiscard]] int stage_of(OpId op) const;
  /// The number of the value that the chain of a virtual stage works on.
  [[nodiscard]] ValueId value(ValueKind kind, int stage, int microbatch) const {
    return (static_cast<ValueId>(kind) * schedule.placement.stages() + stage) * schedule.microbatches +
           microbatch;
  }

 private:
  [[nodiscard]] bool has_end(int stage, bool is_end) const {
    return vocabulary == Vocabulary::whole ? is_end : schedule.placement.chunk_of(stage) == 0;
  }
};

/// Shares of full speed at which a compute op and a collective of its rank's tensor-parallel group run while
/// they overlap, if both contend (Program::contends).
struct Contention {
  double compute = 1, all_reduce = 1;
};

/// "key-value exchange 1", "key-value gradient exchange 1", "all-to-all 1" or "row exchange 1".
std::string exchange_name(const Op& op);

/// For messages: "rank 2, compute, mlp.I of B0.3, layer 1".
std::string describe(const Program& program, OpId id);
/// The same without the stream.
std::string describe_op(const Program& program, OpId id);

/// Returns `steps` steps of a Program with post-validation. Each rank's list and streams continue from step
/// to step without waiting for other ranks. Within a step, dependencies stay as they are. In later steps, an
/// op without dependencies waits for its rank's last op of the step before. Throws InputError if there would
/// be more than kMaxOps ops.
Program repeat(const Program& program, int steps);
/// The number of `op` of one step in step `step` (from 0) of `steps`.
OpId repeated(const Program& program, OpId op, int step, int steps);

}  // namespace stp
