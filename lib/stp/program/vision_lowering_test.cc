// Lowering of a vision encoder: its place on the first virtual stage, its ops, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "support/programs.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Lower, PutsAVisionEncoderOnTheFirstStage) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "I0.0", "W0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {0, 1}, {.embedding = true, .vision_layers = 1});
  Texts first;
  for (OpId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    first.push_back(op_text(program, id));
  EXPECT_THAT(first,
              ElementsAre("F0.0: patches.F0", "F0.0: vision_attn.F0", "F0.0: AR vision_attn.F0",
                          "F0.0: vision_mlp.F0", "F0.0: AR vision_mlp.F0", "F0.0: merger.F0",
                          "F0.0: AR merger.F0", "F0.0: embedding.F", "F0.0: AR embedding.F",
                          "F0.0: send 1 to 1", "I0.0: merger.I0", "I0.0: AR merger.I0", "I0.0: vision_mlp.I0",
                          "I0.0: AR vision_mlp.I0", "I0.0: vision_attn.I0", "I0.0: AR vision_attn.I0",
                          "W0.0: embedding.W both", "W0.0: merger.W both0", "W0.0: vision_mlp.W both0",
                          "W0.0: vision_attn.W both0", "W0.0: patches.W both0"));
  EXPECT_THAT(waits_of(program, 0, "I0.0: merger.I0"), Contains("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), Contains("0 F0.0: AR merger.F0"));
  EXPECT_THAT(waits_of(program, 0, "W0.0: patches.W both0"), Contains("0 I0.0: AR vision_attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "W0.0: embedding.W both"), Not(Contains("0 I0.0: AR vision_attn.I0")));
}

// All that a full backward has beside a split one is order.
TEST(Lower, OfAVisionEncoderIssuesEachUnitOncePerMicrobatch) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 60; ++draw) {
    const int p = 1 + draw % 3, m = 1 + static_cast<int>(random() % 4);
    const Schedule schedule = random_schedule(random, draw % 2 ? Placement::v(p) : Placement::loop(p, 2), m);
    std::vector<int> layers = random_layers(random, 2 * p);
    layers[0] = 0;
    const Program program =
        lower(schedule, layers, {.release = kReleases[draw % 3], .embedding = true, .vision_layers = 3});
    std::map<std::string, int> of;
    for (const Op& op : program.ops)
      if (is_vision(op.unit) || op.unit == Unit::embedding)
        ++of[(op.kind == OpKind::all_reduce ? "AR " : "") + to_string(op.unit, op.unit_pass)];
    for (const std::string unit : {"vision_attn", "vision_mlp", "merger"})
      for (const std::string pass : {".F", ".I", ".W"}) {
        const int each = (unit == "merger" ? 1 : 3) * m;
        EXPECT_EQ(of[unit + pass], each) << unit << pass;
        EXPECT_EQ(of["AR " + unit + pass], pass == ".W" ? 0 : each) << unit << pass;
      }
    EXPECT_EQ(of["patches.F"] + of["patches.W"] + of["embedding.F"] + of["embedding.W"], 4 * m);
    EXPECT_EQ(of["AR embedding.F"], m);
    EXPECT_NO_THROW(issue_order(program));
  }
}

TEST(Lower, RefusesLayersOnTheStageOfAVisionEncoder) {
  const auto refused = [](const Placement& placement, const std::vector<int>& layers) {
    std::mt19937 random(1);
    const Schedule schedule = random_schedule(random, placement, 1);
    return refusal([&] { lower(schedule, layers, {.embedding = true, .vision_layers = 3}); });
  };
  EXPECT_THAT(refused(Placement::loop(2, 1), {1, 1}),
              HasSubstr("begins with 1, but the first virtual stage is"));
  EXPECT_THAT(refused(Placement::loop(1, 1), {2}),
              HasSubstr("the vision encoder is a virtual stage of its own"));
}

}  // namespace
}  // namespace stp
