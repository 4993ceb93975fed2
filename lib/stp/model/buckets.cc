#include "stp/model/buckets.h"

#include <algorithm>

namespace stp {

BucketRule megatron_bucket_rule(const ModelConfig& model, int tp, int replicas) {
  BucketRule rule{.size = std::max(40e6, 1e6 * replicas)};
  for (const Unit unit : kUnits)
    if (!(unit == Unit::head && model.tied()))
      rule.parameters[static_cast<size_t>(unit)] = model.parameters_of(unit) / tp;
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
