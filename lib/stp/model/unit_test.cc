// The names of units and passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stp/model/unit.h"

namespace stp {
namespace {

using testing::ElementsAre;

TEST(UnitNames, AreThoseOfCostTables) {
  std::vector<std::string> names;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (has_pass(unit, pass)) names.push_back(to_string(unit, pass));
  EXPECT_THAT(names,
              ElementsAre("attn.F", "attn.I", "attn.W_early", "attn.W", "mlp.F", "mlp.I", "mlp.W_early",
                          "mlp.W", "head.F", "head.I", "head.W", "embedding.F", "embedding.W", "patches.F",
                          "patches.W", "vision_attn.F", "vision_attn.I", "vision_attn.W_early",
                          "vision_attn.W", "vision_mlp.F", "vision_mlp.I", "vision_mlp.W_early",
                          "vision_mlp.W", "merger.F", "merger.I", "merger.W_early", "merger.W"));
}

}  // namespace
}  // namespace stp
