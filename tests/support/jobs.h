// Published models and jobs on profiles of this repository, for tests of costs.
#pragma once

#include <string>
#include <vector>

#include "stp/cost/hardware.h"
#include "stp/model/partition.h"
#include "support/models.h"

namespace stp {

inline HardwareProfile profile_of(const std::string& name) {
  return read_profile(STP_SOURCE_DIR "/profiles/" + name + ".json");
}
// With an adapter for each GPU, so that closed forms of transfers have one sender.
inline HardwareProfile a800() {
  HardwareProfile profile = profile_of("a800");
  profile.adapters_per_node = profile.gpus_per_node;
  return profile;
}

inline Job job(const std::string& name, Shape shape, int pp,
               Implementation implementation = Implementation::megatron) {
  shape.strategy.pp = pp;
  return {model(name), shape, implementation};
}
inline CostTable table_of(const Job& j, const HardwareProfile& profile) {
  const Placement placement = Placement::v(j.strategy().pp);
  return hardware_cost_table(j, profile, paper_partition(j.model.layers, placement.stages()), placement);
}

inline Job vision_job(Implementation implementation = Implementation::megatron) {
  Job j = job("mllm-14.9b", {5120, 1, {.tp = 8}}, 2, implementation);
  j.shape.vision_tokens = 3136;
  return j;
}
inline const std::vector<int> kVisionLayers{0, 12, 12, 9};

}  // namespace stp
