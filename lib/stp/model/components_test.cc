// The tables of components, against what else is declared of units; the parameters of units, and their names.
#include "stp/model/components.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "stp/model/parameters.h"
#include "stp/model/strategy.h"
#include "support/models.h"

namespace stp {
namespace {

using testing::ElementsAre;

TEST(Components, HaveWeightsForThePassesThatTheirUnitHas) {
  for (const Unit unit : kUnits)
    for (const UnitPass pass : {UnitPass::W_early, UnitPass::W_late}) {
      int weights = 0;
      for (const Component& component : components(unit))
        weights += component.weights && component.weights->pass == pass;
      EXPECT_EQ(weights, has_pass(unit, pass) ? 1 : 0) << to_string(unit, pass);
    }
}

// A tensor has one place; weight gradients read what was kept for them by the component before, or the unit's
// input.
TEST(Components, KeepEachTensorOnceAndWhatWeightGradientsRead) {
  for (const Unit unit : kUnits) {
    std::set<Saved> kept;
    for (const Component& component : components(unit)) {
      for (const Kept& each : component.keeps) EXPECT_TRUE(kept.insert(each.which).second);
      if (!component.weights || !component.weights->input) continue;
      EXPECT_TRUE(kept.contains(*component.weights->input)) << to_string(unit);
      for (const Component& other : components(unit))
        for (const Kept& each : other.keeps)
          if (each.which == component.weights->input) {
            EXPECT_EQ(each.until, component.weights->pass) << to_string(unit);
          }
    }
  }
}

// Of a language model and of an encoder before it.
TEST(Components, NameTheParametersOfTheirWeights) {
  const ModelConfig config = model("mllm-14.9b"), encoder = config.encoder();
  for (const Unit unit : kUnits) {
    const std::vector<Parameter> parameters = unit_parameters(config, unit);
    for (const Component& component : components(unit)) {
      if (component.weights == nullptr) continue;
      const TrainedWeights& weights = *component.weights;
      const auto expect = [&](Role role, bool vector) {
        const auto found = std::ranges::find(parameters, role, &Parameter::role);
        ASSERT_NE(found, parameters.end()) << to_string(unit);
        EXPECT_EQ(found->vector(), vector) << to_string(unit);
      };
      expect(weights.role, false);
      if (weights.has_bias(is_vision(unit) ? encoder : config)) expect(weights.bias_role(), true);
    }
  }
}

// F has the parts in the order of the table, or none of them.
TEST(Components, AreInTheOrderOfTheirParts) {
  for (const Unit unit : kUnits) {
    UnitPart last = UnitPart::whole;
    const bool divided = components(unit).front().part != UnitPart::whole;
    for (const Component& component : components(unit)) {
      EXPECT_GE(component.part, last);
      EXPECT_EQ(component.part != UnitPart::whole, divided);
      last = component.part;
    }
    EXPECT_EQ(Strategy({.tp = 2, .tp_overlap = TpOverlap::megatron}).divides(unit),
              divided && !is_vision(unit));
    EXPECT_EQ(Strategy{.cp = 2}.divides(unit), unit == Unit::attn);
    EXPECT_FALSE(Strategy{}.divides(unit));
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

TEST(UnitNames, AreThoseOfCostTables) {
  std::vector<std::string> names;
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      if (has_pass(unit, pass)) names.push_back(to_string(unit, pass));
  EXPECT_THAT(names, testing::ElementsAre(
                         "attn.F", "attn.I", "attn.W_early", "attn.W", "mlp.F", "mlp.I", "mlp.W_early",
                         "mlp.W", "head.F", "head.I", "head.W", "embedding.F", "embedding.W", "patches.F",
                         "patches.W", "vision_attn.F", "vision_attn.I", "vision_attn.W_early",
                         "vision_attn.W", "vision_mlp.F", "vision_mlp.I", "vision_mlp.W_early",
                         "vision_mlp.W", "merger.F", "merger.I", "merger.W_early", "merger.W"));
}

// ---- strategies ----

TEST(RankGrid, CountsTensorThenContextThenDataThenPipelineParallelism) {
  const RankGrid grid{.tp = 2, .cp = 3, .dp = 2, .pp = 2};
  EXPECT_EQ(grid.size(), 24);
  EXPECT_THAT(grid.group(15, {.tp = true}), ElementsAre(14, 15));
  EXPECT_THAT(grid.group(15, {.cp = true}), ElementsAre(13, 15, 17));
  EXPECT_THAT(grid.group(15, {.cp = true, .dp = true}), ElementsAre(13, 15, 17, 19, 21, 23));
  EXPECT_THAT(grid.group(15, {.tp = true, .pp = true}), ElementsAre(2, 3, 14, 15));
  EXPECT_THAT(grid.group(15, {}), ElementsAre(15));
  EXPECT_THAT(grid.group(15, kAllAxes), testing::SizeIs(24));
  EXPECT_EQ(grid.index(grid.place(15), {.cp = true, .dp = true}), 1);
  EXPECT_EQ(grid.index(grid.place(15), kAllAxes.without({.cp = true, .dp = true})), 3);
  for (int rank = 0; rank < grid.size(); ++rank) EXPECT_EQ(grid.rank(grid.place(rank)), rank);
}

TEST(RankGrid, HasTheAxesOfItsStrategy) {
  Strategy strategy;
  int ranks = 2;
  for (const Axis& axis : kAxes) strategy.*axis.ranks = ranks++;
  EXPECT_EQ(strategy.grid().size(), 2 * 3 * 4 * 5);
  EXPECT_EQ(strategy.world_size(), 2 * 3 * 4 * 5);
}

}  // namespace
}  // namespace stp
