#include "stp/model/partition.h"

#include <algorithm>
#include <span>
#include <string>

#include "stp/base/error.h"
#include "stp/model/parameters.h"

namespace stp {

std::vector<int> paper_partition(int layers, int stages) {
  if (stages > layers + 2)
    throw InputError("", "parallel.pp",
                     std::to_string(stages) + " virtual stages are more than the model's " +
                         std::to_string(layers) + " layers allow",
                     "use fewer ranks or chunks");
  if ((layers + 2) % stages != 0)
    throw InputError("", "parallel.pp",
                     std::to_string(layers) + " layers and a last chunk with two fewer do not divide into " +
                         std::to_string(stages) + " virtual stages",
                     "write layers_per_chunk: \"even\" (also by --set layers_per_chunk=even), or one number "
                     "per virtual stage");
  std::vector<int> layers_per_stage(stages, (layers + 2) / stages);
  layers_per_stage.back() -= 2;
  if (layers_per_stage.back() < 0)
    throw InputError("", "parallel.pp", "the last chunk would have a negative number of layers",
                     "write layers_per_chunk");
  return layers_per_stage;
}

std::vector<int> even_partition(int layers, int stages) {
  if (stages > layers)
    throw InputError("", "layers_per_chunk",
                     "cannot be even: " + std::to_string(stages) +
                         " virtual stages are more than the model's " + std::to_string(layers) + " layers",
                     "use fewer ranks or chunks, or write one number per virtual stage");
  std::vector<int> layers_per_stage(stages, layers / stages);
  for (int stage = 0; stage < layers % stages; ++stage) ++layers_per_stage[stage];
  return layers_per_stage;
}

std::vector<UnitOfChunk> units_of_chunk(int layers, const ChunkEnds& ends) {
  std::vector<UnitOfChunk> units;
  const auto add_layers = [&](int count, std::span<const Unit> of_layer) {
    for (int layer = 0; layer < count; ++layer)
      for (const Unit unit : of_layer) units.push_back({unit, static_cast<int16_t>(layer)});
  };
  if (ends.vision_layers > 0) {
    units.push_back({Unit::patches, 0});
    add_layers(ends.vision_layers, kVisionLayerUnits);
    units.push_back({Unit::merger, 0});
  }
  if (ends.embedding) units.push_back({Unit::embedding, 0});
  add_layers(layers, kLayerUnits);
  if (ends.head) units.push_back({Unit::head, 0});
  return units;
}

BucketRule megatron_bucket_rule(const ModelConfig& model, const Strategy& strategy) {
  BucketRule rule{.size = std::max(40e6, 1e6 * strategy.replicas())};
  for (const Unit unit : kUnits)
    if (!(unit == Unit::head && model.tied()))
      rule.parameters[static_cast<size_t>(unit)] = parameters_of_rank(model, unit, strategy);
  return rule;
}

bool Bucket::has(Unit unit, int layer) const {
  return std::ranges::find(units, UnitOfChunk{unit, static_cast<int16_t>(layer)}) != units.end();
}

std::vector<Bucket> fill_buckets(const std::vector<UnitOfChunk>& units, const BucketRule& rule) {
  if (rule.size <= 0) return {};
  std::vector<Bucket> buckets;
  const std::vector<UnitOfChunk> backward(units.rbegin(), units.rend());
  for (const UnitOfChunk& of : backward) {
    if (buckets.empty() || buckets.back().parameters >= rule.size) buckets.emplace_back();
    buckets.back().units.push_back(of);
    buckets.back().parameters += rule.parameters[static_cast<size_t>(of.unit)];
  }
  if (buckets.size() < 2) return {};
  return buckets;
}

}  // namespace stp
