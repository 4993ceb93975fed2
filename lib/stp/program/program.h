// The Program: per rank, a list of ops on named in-order streams, with dependencies. It is simulated and run;
// docs/architecture.md, section 5, defines its semantics. It has no times.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stp/model/buckets.h"
#include "stp/model/unit.h"
#include "stp/model/work.h"
#include "stp/schedule/schedule.h"

namespace stp {

/// The in-order streams of a rank. A p2p stream is one direction between two ranks.
enum class StreamKind : uint8_t { compute, tp, p2p, dp, cp, d2h, h2d };
std::string to_string(StreamKind kind);

struct ProgramStream {
  StreamKind kind;
  int rank;  // the owner; of a p2p stream, the sender
  int peer;  // of a p2p stream, the receiver; else -1
};

enum class OpKind : uint8_t {
  compute,           // one pass of one unit of one layer
  weight_gradients,  // both parts, W_early and W_late, of one unit of one layer
  all_reduce,      // of the unit's output (F) or of its input's gradient (I), over the tensor-parallel group
  reduce_scatter,  // replaces it with sequence parallelism: each rank gets its share of the rows
  all_gather,      // with sequence parallelism, of the input of the unit's `unit_pass`, before it
  kv_exchange,     // each rank of a context-parallel ring sends the next its current keys and values
  kv_gradient_exchange,  // the same of their gradients, summed up so far
  all_to_all,  // in place of both: each of the context-parallel ranks gets its heads of the others' rows, or
               // back. Step 1 is of q, k and v (F) or the output's gradient (I), step 2 of the output or
               // gradients of q, k and v
  row_exchange,  // in place of an all-gather: each tensor-parallel rank sends the next the latest rows it has
  transfer,      // of a chunk's output to the rank that waits for it
  gradient_reduce,   // of a chunk's or bucket's gradients, over all ranks that hold the chunk: an all-reduce
  gradient_scatter,  // replaces it with ZeRO-1: a reduce-scatter, each of these ranks gets its share
  weight_gather,     // with ZeRO-1, of the weights of one of these, before its first forward: an all-gather
  embedding_reduce,  // of tied embeddings' gradients, between the ranks of the first and last virtual stage
  gradient_norm,     // with post-validation, the square of the norm of a pipeline rank's gradients
  norm_prefix,       // of it and those of the ranks before, summed up, to the next rank
  norm_total,        // of the last step's sum over all ranks, to the rank before
  optimizer,         // the weight update of a rank's chunks, or of this replica's share of them
  offload,           // of saved tensors of a chunk and microbatch to the host, behind their forward
  reload,            // of the same back to the device, before their backward
};

/// Whether it is a collective of the tensor-parallel group.
constexpr bool is_collective(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::all_gather;
}
/// Whether it is a collective of all ranks that hold a chunk, of its parameters.
constexpr bool is_of_replicas(OpKind kind) {
  return kind == OpKind::gradient_reduce || kind == OpKind::gradient_scatter || kind == OpKind::weight_gather;
}
/// Whether it is an exchange: of the context-parallel ranks, or of the tensor-parallel ones.
constexpr bool is_exchange(OpKind kind) {
  return kind == OpKind::kv_exchange || kind == OpKind::kv_gradient_exchange || kind == OpKind::all_to_all ||
         kind == OpKind::row_exchange;
}
/// Whether it copies between device and host.
constexpr bool is_host_copy(OpKind kind) { return kind == OpKind::offload || kind == OpKind::reload; }
/// Whether it takes a number of the gradients' norm to another rank.
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
  Unit unit;           // of compute, weight_gradients and collectives
  UnitPass unit_pass;  // of compute; of a collective F or I, of an embedding's all-gather W_late
  Pass pass;           // of the action that it is part of
  int16_t chunk;
  int16_t layer;  // within the chunk, in the order of the forward
  int32_t microbatch;
  int32_t block;    // index of the block in its rank's list; -1: none (optimizer)
  uint32_t stream;  // index into Program::streams
  /// The value that it consumes and the one that it makes, which may be the same: along a chain each op
  /// changes the chain's value. kNoValue: none. A transfer carries one, or two if those of two microbatches
  /// are merged (`input` and `output`), to the other rank, where they have the same numbers.
  ValueId input = kNoValue, output = kNoValue;
  UnitPart part = UnitPart::whole;  // of F and I of a unit that Program::division() divides; of a
                                    // reduce-scatter of what a step of `after` made
  int16_t step = 0;                 // of the part, from 0; of an exchange, from 1; of gradients or weights
                                    // of a chunk, the bucket
  /// Whether it and an op on the other one of its rank's `compute` and `tp` slow each other down while they
  /// overlap, if both may.
  bool contends = true;

  /// A forward that a backward recomputes.
  [[nodiscard]] bool recomputed() const { return unit_pass == UnitPass::F && is_backward(pass); }
  /// The number of tensors of a transfer.
  [[nodiscard]] int tensors() const { return output == kNoValue ? 1 : 2; }
};

using OpId = uint32_t;

struct Program {
  Schedule schedule;
  std::vector<int> layers_per_stage;
  Strategy strategy;                  // `zero` only where gradients are reduced
  int vision_layers = 0;              // of a vision encoder, which is the first virtual stage
  std::vector<Bucket> first_buckets;  // of the first virtual stage: two or more, or none as all others
  std::vector<ProgramStream> streams;
  std::vector<Op> ops;              // by rank, each in the order of issue
  std::vector<OpId> rank_begin;     // p + 1 entries: rank r issues ops [rank_begin[r], rank_begin[r + 1])
  std::vector<OpId> depends_begin;  // ops + 1 entries into `depends`
  std::vector<OpId> depends;        // what an op waits for besides the op before it on its stream

  /// What divides units into parts.
  [[nodiscard]] Division division() const { return strategy.division(); }
  [[nodiscard]] std::span<const OpId> dependencies(OpId op) const {
    return {depends.data() + depends_begin[op], depends.data() + depends_begin[op + 1]};
  }
  [[nodiscard]] const ProgramStream& stream_of(OpId op) const { return streams[ops[op].stream]; }
  /// Whether `op` is the one that frees the device memory of what `needed`, one of its dependencies,
  /// offloads.
  [[nodiscard]] bool frees(OpId op, OpId needed) const {
    return ops[needed].kind == OpKind::offload && ops[op].kind != OpKind::reload;
  }
  /// The buckets of a virtual stage's chunk; none: all that it has is one.
  [[nodiscard]] std::span<const Bucket> buckets(int stage) const {
    return stage == 0 ? std::span<const Bucket>(first_buckets) : std::span<const Bucket>();
  }
  /// The virtual stage that an op works for; -1 for the optimizer and the gradients' norm.
  [[nodiscard]] int stage_of(OpId op) const;
  /// The number of the value that the chain of a virtual stage works on.
  [[nodiscard]] ValueId value(ValueKind kind, int stage, int microbatch) const {
    return (static_cast<ValueId>(kind) * schedule.placement.stages() + stage) * schedule.microbatches +
           microbatch;
  }
};

/// "key-value exchange 1", "key-value gradient exchange 1", "all-to-all 1" or "row exchange 1".
std::string exchange_name(const Op& op);
/// "offload of F0.1" or "reload for B0.1".
std::string host_copy_name(const Op& op);

/// "chunk 0", or "chunk 0, bucket 1" where it has several.
std::string bucket_name(const Program& program, OpId id);

/// For messages: "rank 2, compute, mlp.I of B0.3, layer 1".
std::string describe(const Program& program, OpId id);
/// The same without the stream, for callers that name it otherwise.
std::string describe_op(const Program& program, OpId id);

}  // namespace stp
