// The parameters of units: as many as the configuration counts, and their names.
#include <gtest/gtest.h>

#include <cstdint>

#include "stp/model/parameters.h"
#include "support/models.h"

namespace stp {
namespace {

// As many as the runtime's tensors have; but the last norm, which no count of the head's has.
TEST(Buckets, CountTheParametersOfUnits) {
  for (const char* name : {"llm-12.1b", "llama3-8b", "mllm-14.9b"}) {
    const ModelConfig config = model(name);
    for (const Unit unit : kUnits) {
      int64_t elements = 0;
      for (const Parameter& parameter : unit_parameters(config, unit))
        elements += parameter.local_rows(1) * parameter.columns(1);
      EXPECT_EQ(config.parameters_of(unit), elements - (unit == Unit::head ? config.hidden : 0))
          << name << " " << to_string(unit);
    }
  }
}

TEST(VisionParameters, OfAllUnitsAreThoseOfTheModel) {
  ModelConfig config = model("mllm-14.9b");
  for (const int tp : {1, 8}) {
    double all = 0;
    for (const Unit unit : kVisionUnits)
      for (const Parameter& parameter : unit_parameters(config, unit)) {
        const double elements = static_cast<double>(parameter.local_rows(tp) * parameter.columns(tp));
        all += (is_of_layer(unit) ? config.vision.layers : 1) * elements *
               (parameter.partial_gradient() ? 1 : tp);
      }
    EXPECT_EQ(all, config.vision_parameters());
  }
  const ParameterPart part = unit_parameters(config, Unit::vision_attn)[1].parts[0];
  EXPECT_EQ(parameter_name(part, 3), "vision.layers.3.attn.q.weight");
  EXPECT_EQ(parameter_name(unit_parameters(config, Unit::merger)[0].parts[0], -1), "vision.merger.norm.gain");
  config.vision = {};
  for (const Unit unit : kVisionUnits) EXPECT_TRUE(unit_parameters(config, unit).empty());
}

}  // namespace
}  // namespace stp
