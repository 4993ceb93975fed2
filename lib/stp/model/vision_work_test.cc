// The work and saved tensors of a vision encoder's units, against the formula of FLOPs and counts by hand.
#include <gtest/gtest.h>

#include "stp/model/work.h"
#include "support/models.h"

namespace stp {
namespace {

Shape with_vision(int seq, int tp, int vision_tokens, int microbatch_size = 1) {
  Shape shape{seq, microbatch_size, {.tp = tp}};
  shape.vision_tokens = vision_tokens;
  return shape;
}

// What the encoder adds to the formula is what its units compute: forward once, backward twice.
TEST(VisionWork, HasTheFlopsOfTheFormula) {
  for (const char* name : {"mllm-14.9b", "mllm-30.3b"})
    for (const int tp : {1, 8}) {
      const ModelConfig config = model(name);
      const Shape shape = with_vision(5120, tp, 3136, 2);
      double all = 0, backward = 0;
      for (const Unit unit : kVisionUnits)
        for (const UnitPass pass : kUnitPasses) {
          const Work of = work(config, shape, Implementation::suite, unit, pass);
          EXPECT_EQ(of.kernels > 0, has_pass(unit, pass)) << to_string(unit, pass);
          const int shares = unit == Unit::patches ? 1 : tp;  // every rank repeats the embedding of patches
          const int layers = is_of_layer(unit) ? config.vision.layers : 1;
          all += layers * shares * (gemm_flops(of) + attention_flops(of, false));
          backward += layers * shares * attention_flops(of, true);
          if (unit == Unit::patches)
            all += pass == UnitPass::F ? gemm_flops(of) : 0;  // no gradient of pixels
        }
      all += backward / 2.5 * 2;
      const double of_encoder = model_flops(config, 5120, 3136) - model_flops(config, 5120, 0);
      EXPECT_NEAR(all, 2 * of_encoder, 1e-12 * all) << name << " tp " << tp;
      ModelConfig language = config;
      language.vision = {};
      EXPECT_EQ(model_flops(config, 5120, 0), model_flops(language, 5120));
    }
}

TEST(VisionWork, AttendsWithoutAMask) {
  const ModelConfig config = model("mllm-14.9b");
  const Work forward =
      work(config, with_vision(5120, 4, 3136), Implementation::suite, Unit::vision_attn, UnitPass::F);
  EXPECT_EQ(attention_flops(forward, false), 2 * 2.0 * 3136 * 3136 * 2048 / 4);
}

TEST(VisionWork, IsOfTheEncodersTokensAlone) {
  const ModelConfig config = model("mllm-14.9b");
  for (const Unit unit : kVisionUnits)
    for (const UnitPass pass : kUnitPasses) {
      const auto of = [&](int seq, int vision_tokens) {
        return work(config, with_vision(seq, 4, vision_tokens), Implementation::megatron, unit, pass);
      };
      EXPECT_EQ(of(5120, 3136).gemms, of(1024, 3136).gemms);
      EXPECT_EQ(gemm_flops(of(5120, 6272)), 2 * gemm_flops(of(5120, 3136)));
      EXPECT_EQ(
          gemm_flops(work(model("llm-12.1b"), {5120, 1, {.tp = 4}}, Implementation::megatron, unit, pass)),
          0);
    }
}

TEST(VisionWork, ReducesEachUnitsOutputAndItsInputsGradient) {
  const ModelConfig config = model("mllm-14.9b");
  const Shape shape = with_vision(5120, 4, 3136, 2);
  const auto bytes = [&](Unit unit, UnitPass pass) { return reduced_bytes(config, shape, unit, pass); };
  EXPECT_EQ(bytes(Unit::attn, UnitPass::F), 2.0 * 2 * 5120 * 5120);
  EXPECT_EQ(bytes(Unit::vision_attn, UnitPass::F), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::vision_mlp, UnitPass::I), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::merger, UnitPass::I), 2.0 * 2 * 3136 * 2048);
  EXPECT_EQ(bytes(Unit::merger, UnitPass::F), 2.0 * 2 * 784 * 5120);
  EXPECT_FALSE(is_reduced(Unit::patches, UnitPass::F));
}

// By hand, in bf16 elements a token: LayerNorm keeps its input and makes its output.
TEST(VisionSavedTensors, AreTheInputsOfItsKernels) {
  const ModelConfig config = model("mllm-14.9b");
  const Shape shape = with_vision(5120, 4, 3136);
  const auto kept = [&](Unit unit, Implementation implementation) {
    return kept_bytes(config, shape, implementation, unit) / (2 * 3136);
  };
  const double d = 2048, mask = d / 2;
  EXPECT_EQ(kept(Unit::patches, Implementation::megatron), 1176);
  EXPECT_EQ(kept(Unit::vision_attn, Implementation::megatron), 2 * d + mask + 4 * d / 4 + 2 * 16 / 4);
  EXPECT_EQ(kept(Unit::vision_mlp, Implementation::megatron), 2 * d + mask + 2 * 4 * d / 4);
  EXPECT_EQ(kept(Unit::merger, Implementation::megatron), 2 * d + 2 * d / 4);
  EXPECT_EQ(kept(Unit::merger, Implementation::suite),
            2 * d + 2 * 2 + 2 * d / 4);  // mean and deviation, fp32
  for (const Unit unit : kVisionUnits)
    EXPECT_TRUE(
        saved_tensors(model("llm-12.1b"), {5120, 1, {.tp = 4}}, Implementation::megatron, unit).empty());
}

}  // namespace
}  // namespace stp
