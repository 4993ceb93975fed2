// The division of a model's layers over virtual stages; the units of a stage's chunk, and their buckets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/strategy.h"

namespace stp {

/// The paper's rule (section 5.1): all chunks have the same number of layers, but the last, which also has
/// the head, has two fewer. Throws InputError if (layers + 2) is not a multiple of the number of stages, or a
/// stage would have a negative number of layers.
std::vector<int> paper_partition(int layers, int stages);

/// Divides layers evenly; the first stages take the remainder, one layer each. Throws InputError if a stage
/// would have no layer.
std::vector<int> even_partition(int layers, int stages);

/// A unit of a chunk. `layer` counts within the chunk, or within its vision encoder; it is 0 for units
/// outside layers.
struct UnitOfChunk {
  Unit unit;
  int16_t layer;

  bool operator==(const UnitOfChunk&) const = default;
};

/// The units of a chunk besides its layers.
struct ChunkEnds {
  bool embedding = false, head = false;
  int vision_layers = 0;  // layers of the vision encoder before the embedding; 0: none
};

/// The units of a chunk of `layers` layers, in the order of the forward.
std::vector<UnitOfChunk> units_of_chunk(int layers, const ChunkEnds& ends);

/// When a bucket is full. Megatron-LM closes a bucket at the parameter that reaches `size`; the suite closes
/// it at the unit that does.
struct BucketRule {
  double size = 0;                                 // parameters of a rank; 0: there is one bucket
  std::array<double, kUnits.size()> parameters{};  // of a rank, by unit
};

/// Megatron-LM's default: max(40 · 10⁶, 10⁶ · replicas()) parameters. The rule counts the first virtual
/// stage's units; a head tied to the embedding adds no parameters.
BucketRule megatron_bucket_rule(const ModelConfig& model, const Strategy& strategy);

/// Units of a chunk whose gradients are reduced together, and whose weights are gathered together, after
/// Megatron-LM's DistributedDataParallel.
struct Bucket {
  std::vector<UnitOfChunk> units;  // the last of the forward first
  double parameters = 0;           // of a rank

  [[nodiscard]] bool has(Unit unit, int layer) const;
};

/// Fills buckets with the units of a chunk, the last of `units` first, as a backward completes their
/// gradients. Returns no buckets if one would hold all units.
std::vector<Bucket> fill_buckets(const std::vector<UnitOfChunk>& units, const BucketRule& rule);

}  // namespace stp
