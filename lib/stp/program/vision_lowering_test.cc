// Lowering of a vision encoder: its place on the first virtual stage, its ops, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

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

TEST(Lower, PutsTheEmbeddingsGradientBeforeTheBackwardOfAVisionEncoder) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const Program program =
      lower(schedule, {0, 1}, {.backward = BackwardOrder::megatron, .embedding = true, .vision_layers = 1});
  Texts backward;
  for (OpId id = program.rank_begin[0]; id < program.rank_begin[1]; ++id)
    if (program.ops[id].pass == Pass::B) backward.push_back(op_text(program, id).substr(6));
  EXPECT_THAT(backward, ElementsAre("embedding.W both", "merger.I0", "merger.W_early0", "AR merger.I0",
                                    "merger.W0", "vision_mlp.I0", "vision_mlp.W_early0", "AR vision_mlp.I0",
                                    "vision_mlp.W0", "vision_attn.I0", "vision_attn.W_early0",
                                    "AR vision_attn.I0", "vision_attn.W0", "patches.W both0"));
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
