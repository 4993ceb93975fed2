// The parameters of one chunk of a rank: weights, gradients, and the optimizer's state.
#pragma once

#include <array>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stp/device/device.h"
#include "stp/device/run_guard.h"
#include "stp/model/partition.h"
#include "stp/runtime/matrix_shard.h"
#include "stp/runtime/training.h"

namespace stp {

/// One tensor of parameters, this rank's shard: a part of its bucket's buffers.
struct ParameterState {
  Parameter parameter;
  int layer;      // in the language model, or in the encoder; −1 for units outside layers
  int64_t begin;  // the first element in the buffers
  Tensor weight, gradient;
  int bucket;         // index in the chunk
  int shards, shard;  // of a divided parameter: their number, and this rank's
};

/// That of a unit's parameters with this role.
inline const ParameterState& with_role(const std::vector<ParameterState>& parameters, Role role) {
  for (const ParameterState& state : parameters)
    if (state.parameter.role == role) return state;
  throw std::logic_error("a unit lacks a parameter");
}

/// Parameters whose gradients are reduced together: they lie in buffers, one after the other, so that a
/// reduction or an optimizer step is one call. A table that embedding and head share is alone in one, so that
/// both copies are shared alike between replicas (as Megatron-LM's buckets of shared embeddings).
struct BucketState {
  int reduced_with = 0;       // the Program's bucket whose ops reduce it
  Axes replicas;              // of its parameters
  Tensor weights, gradients;  // one row each
  /// From this element on, each tensor-parallel rank has one summand of the parameters' gradients.
  int64_t partial_begin = 0;
  /// The optimizer's state, for this replica's share of the elements (ZeRO-1) or for all. `master` is fp32 if
  /// weights are bf16; otherwise it is the share of the weights itself.
  int64_t share_begin = 0;
  Tensor master, first_moment, second_moment;
  /// With post-validation: each tensor that a step changes, and memory for a copy (MemoryKind::optimizer).
  std::vector<std::pair<Tensor, Tensor>> undo;

  [[nodiscard]] int64_t share_size() const { return master.elements(); }
  /// This replica's share of a buffer.
  [[nodiscard]] Tensor share_of(const Tensor& buffer) const {
    return buffer.part(share_begin, 1, share_size());
  }
};

struct ChunkState {
  int first_layer = 0;  // in the whole model
  std::vector<UnitOfChunk> units;
  /// By unit and UnitOfChunk::layer, in the order of unit_parameters().
  std::array<std::vector<std::vector<ParameterState>>, kUnits.size()> parameters;
  std::vector<BucketState> buckets;  // none without parameters

  [[nodiscard]] const std::vector<ParameterState>& of(Unit unit, int layer) const {
    return parameters[static_cast<size_t>(unit)][layer];
  }
  [[nodiscard]] std::vector<ParameterState*> all();
};

/// The part of the model that a chunk holds.
struct ChunkShape {
  int first_layer, layers;
  bool first, last;                      // has the embedding (with a vision encoder before it); has the head
  std::span<const Bucket> buckets = {};  // empty: one bucket holds the chunk
  bool shares_vocabulary = false;        // all pipeline ranks share both
};

/// Makes a chunk's parameters, with their initial values, of the rank at `place`.
ChunkState make_chunk(RunGuard& guard, Device& device, Stream& stream, const Training& training,
                      const ChunkShape& shape, const Strategy& strategy, const RankGrid::Place& place);

/// Frees the memory of a chunk's buffers.
void release_chunk(Device& device, Stream& stream, ChunkState& chunk);

/// Uploads those of a parameter's values that belong to this replica's share; `shared` holds the bucket's
/// share. Values repeat if there are fewer than elements.
void upload_share(Device& device, Stream& stream, const BucketState& bucket, const Tensor& shared,
                  const ParameterState& state, std::vector<double> values);

/// Calls use(shard, offset) for each part of a parameter that a rank holds: its block of the full matrix,
/// still without values, and the block's offset in the rank's own tensor.
template <typename Use>
void for_each_block(const ParameterState& state, Use use) {
  int64_t offset = 0;
  for (const ParameterPart& part : state.parameter.parts) {
    const int64_t rows = part.local_rows(state.shards), columns = part.local_columns(state.shards);
    use(MatrixShard{parameter_name(part, state.layer),
                    part.rows,
                    part.columns,
                    part.split == Split::rows ? state.shard * rows : 0,
                    rows,
                    part.split == Split::columns ? state.shard * columns : 0,
                    columns,
                    {}},
        offset);
    offset += rows * columns;
  }
}

}  // namespace stp
