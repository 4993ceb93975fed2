// The segments that each pass makes of its units, against docs/architecture.md, section 5.
#include "stp/program/units.h"

#include <gtest/gtest.h>

#include <string>

namespace stp {
namespace {

TEST(Segments, OfEveryPassAreThoseOfSectionFive) {
  const auto text = [](Pass pass, int layers, bool last, BackwardOrder order, ChainOptions options = {}) {
    std::string all;
    for (const Segment& s : segments(pass, layers, last, order, options)) {
      all += to_string(s.unit) + std::to_string(s.layer);
      all += s.main == Segment::Main::forward ? ".F" : s.main == Segment::Main::input_gradient ? ".I" : ".W";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+early";
      if (s.all_reduce) all += "+AR";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+late";
      if (s.weights == Segment::Weights::both_behind) all += "+W";
      all += " ";
    }
    return all;
  };
  for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
    EXPECT_EQ(text(Pass::F, 2, false, order), "attn0.F+AR mlp0.F+AR attn1.F+AR mlp1.F+AR ");
    EXPECT_EQ(text(Pass::F, 1, true, order), "attn0.F+AR mlp0.F+AR head0.F ");
    EXPECT_EQ(text(Pass::F, 0, true, order), "head0.F ");
    EXPECT_EQ(text(Pass::I, 2, false, order), "mlp1.I+AR attn1.I+AR mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::I, 1, true, order), "head0.I mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::W, 2, false, order), "mlp1.W attn1.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::W, 1, true, order), "head0.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::B, 0, true, order), "head0.I+W ");
    for (const Pass pass : {Pass::F, Pass::I, Pass::W, Pass::B}) EXPECT_EQ(text(pass, 0, false, order), "");
  }
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite),
            "head0.I+W mlp1.I+AR+W attn1.I+AR+W mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite), "mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(
      text(Pass::B, 2, true, BackwardOrder::megatron),
      "head0.I+W mlp1.I+early+AR+late attn1.I+early+AR+late mlp0.I+early+AR+late attn0.I+early+AR+late ");
  // Recomputation: each layer before its own backward; never the head; not for a W of its own.
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite, {.recompute = true}),
            "head0.I+W attn1.F+AR mlp1.F+AR mlp1.I+AR+W attn1.I+AR+W "
            "attn0.F+AR mlp0.F+AR mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::W, 1, true, BackwardOrder::suite, {.recompute = true}), "head0.W mlp0.W attn0.W ");
  // The embedding comes first and has a weight gradient alone, last.
  const ChainOptions with{.embedding = true};
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, with),
            "embedding0.F+AR attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, with), "mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite, with), "mlp0.I+AR+W attn0.I+AR+W embedding0.W ");
  EXPECT_EQ(text(Pass::W, 1, false, BackwardOrder::megatron, with), "mlp0.W attn0.W embedding0.W ");
  // A vision encoder comes before it.
  const ChainOptions vision{.embedding = true, .vision_layers = 2};
  EXPECT_EQ(text(Pass::F, 0, false, BackwardOrder::suite, vision),
            "patches0.F vision_attn0.F+AR vision_mlp0.F+AR vision_attn1.F+AR vision_mlp1.F+AR merger0.F+AR "
            "embedding0.F+AR ");
  EXPECT_EQ(text(Pass::I, 0, false, BackwardOrder::suite, vision),
            "merger0.I+AR vision_mlp1.I+AR vision_attn1.I+AR vision_mlp0.I+AR vision_attn0.I+AR ");
  EXPECT_EQ(text(Pass::B, 0, false, BackwardOrder::megatron, vision),
            "embedding0.W merger0.I+early+AR+late vision_mlp1.I+early+AR+late vision_attn1.I+early+AR+late "
            "vision_mlp0.I+early+AR+late vision_attn0.I+early+AR+late patches0.W ");
  EXPECT_EQ(text(Pass::W, 0, false, BackwardOrder::suite, vision),
            "embedding0.W merger0.W vision_mlp1.W vision_attn1.W vision_mlp0.W vision_attn0.W patches0.W ");
}

}  // namespace
}  // namespace stp
