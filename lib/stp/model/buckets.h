// Buckets of data parallelism, after Megatron-LM's DistributedDataParallel: the units of a chunk whose
// gradients are reduced together, and whose weights are gathered together.
#pragma once

#include <array>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/partition.h"

namespace stp {

/// When a bucket is full. Megatron-LM closes a bucket at the parameter that reaches `size`; the suite closes
/// it at the unit that does.
struct BucketRule {
  double size = 0;                                 // parameters of a rank; 0: there is one bucket
  std::array<double, kUnits.size()> parameters{};  // of a rank, by unit
};

/// Megatron-LM's default: max(40 · 10⁶, 10⁶ · `replicas`) parameters. `replicas` (dp · cp) ranks hold the
/// same parameters. The rule counts the first virtual stage's units; a head tied to the embedding adds no
/// parameters.
BucketRule megatron_bucket_rule(const ModelConfig& model, int tp, int replicas);

struct Bucket {
  std::vector<UnitOfChunk> units;  // the last of the forward first
  double parameters = 0;           // of a rank

  [[nodiscard]] bool has(Unit unit, int layer) const;
};

/// Fills buckets with the units of a chunk, the last of `units` first, as a backward completes their
/// gradients. Returns no buckets if one would hold all units.
std::vector<Bucket> fill_buckets(const std::vector<UnitOfChunk>& units, const BucketRule& rule);

}  // namespace stp
