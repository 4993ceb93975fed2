// Megatron-Core with Transformer Engine: saved tensors, traffic and launches, against closed forms.
#include <gtest/gtest.h>

#include "stp/model/work.h"
#include "support/models.h"

namespace stp {
namespace {

constexpr auto kTe = Implementation::megatron_te;

// Bytes that a layer keeps, per token of a rank before sequence parallelism.
double kept_per_token(const ModelConfig& config, const Shape& shape, Implementation implementation = kTe) {
  return (kept_bytes(config, shape, implementation, Unit::attn) +
          kept_bytes(config, shape, implementation, Unit::mlp)) /
         shape.tokens();
}

// (8h + 4q + 4kv + 6f + 4a + 8) / t for gated models; GELU keeps 4f, LayerNorm 8 bytes more, dropout 2h. With
// q = kv = h, f = 4h and dropout these are the 34h of Korthikanti et al. (arXiv 2205.05198, section 4), who
// leave out the statistics.
double closed_form(const ModelConfig& m, int tp) {
  const double h = m.hidden, q = m.q_heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  double bytes = 8 * h + 4 * q + 4 * kv + (m.gated() ? 6 : 4) * m.ffn + 4 * m.q_heads + 8;
  if (m.norm() != Norm::rms) bytes += 8;
  if (m.variant.dropout > 0) bytes += 2 * h;
  if (m.variant.query_key_norm) bytes += 2 * (q + kv) + 4 * (m.q_heads + m.kv_heads);
  return bytes / tp;
}

TEST(TransformerEngine, KeepsTheClosedFormsTensors) {
  for (const char* name :
       {"llama3-8b", "llama3-70b", "llama3-405b", "nemotron4-15b", "gpt-22b", "gpt-175b"}) {
    ModelConfig config = model(name);
    for (const double dropout : {0.0, 0.1}) {
      for (const bool query_key_norm : {false, true}) {
        config.variant.dropout = dropout;
        config.variant.query_key_norm = query_key_norm;
        for (const int tp : {1, 4, 8})
          for (const int cp : {1, 2}) {
            const Strategy strategy{.tp = tp, .cp = cp, .sequence_parallel = true};
            EXPECT_DOUBLE_EQ(kept_per_token(config, {4096, 2, strategy}), closed_form(config, tp)) << name;
          }
      }
    }
  }
  const Shape alone{4096, 2, {.sequence_parallel = true}};
  EXPECT_DOUBLE_EQ(kept_per_token(model("llama3-8b"), alone), 139400);
  EXPECT_DOUBLE_EQ(kept_per_token(model("llama3-70b"), alone), 274696);
  EXPECT_DOUBLE_EQ(kept_per_token(model("llama3-405b"), alone), 520712);
}

TEST(TransformerEngine, KeepsTheCoresOutputAndTheProjectionsInputBehindAnAllToAll) {
  const ModelConfig config = model("llama3-70b");
  Strategy strategy{.tp = 2, .cp = 4, .sequence_parallel = true};
  const double in_ring = kept_per_token(config, {8192, 1, strategy});
  strategy.cp_method = CpMethod::all_to_all;
  EXPECT_DOUBLE_EQ(kept_per_token(config, {8192, 1, strategy}), in_ring + 2.0 * 64 * 128 / 2);
}

TEST(TransformerEngine, KeepsTheGradientOfTheLogitsInTheirPlaceAndFrom2_18OnInFp32) {
  const ModelConfig config = model("llama3-8b");
  const Shape shape{8192, 1, {.tp = 4, .sequence_parallel = true}};
  const double logits = shape.tokens() * config.vocab / 4,
               norm = shape.tokens() * (4.0 * config.hidden + 4) / 4;
  EXPECT_DOUBLE_EQ(kept_bytes(config, shape, kTe, Unit::head), 2 * logits + norm);
  EXPECT_DOUBLE_EQ(kept_bytes(config, shape, Implementation::megatron_te_2_18, Unit::head),
                   4 * logits + norm);
}

// From 2.18 on the forward writes the gradient in fp32: two bytes a logit more.
TEST(TransformerEngine, MovesTheLogitsThreeTimesInTheLoss) {
  const ModelConfig config = model("llama3-8b");
  const Shape shape{8192, 1, {.tp = 4, .sequence_parallel = true}};
  const double logits = 2 * shape.tokens() * config.vocab / 4;
  const auto moved = [&](Implementation implementation) {
    const Work head = work(config, shape, implementation, Unit::head, UnitPass::F);
    return head.replicated_bytes + head.sharded_bytes;
  };
  EXPECT_DOUBLE_EQ(moved(kTe), 3 * logits + 2.0 * 2 * shape.tokens() * config.hidden / 4);  // and the norm
  EXPECT_DOUBLE_EQ(moved(Implementation::megatron_te_2_18) - moved(kTe), logits);
}

TEST(TransformerEngine, DropsWithItsMlpAlsoTheNormThatFc1Contains) {
  const ModelConfig config = model("llama3-70b");
  Shape shape{8192, 1, {.tp = 4, .sequence_parallel = true}};
  const double whole = kept_per_token(config, shape);
  shape.strategy.recompute = {.mlp = true, .activation = true};
  const double h = config.hidden, f = config.ffn;
  EXPECT_DOUBLE_EQ(whole - kept_per_token(config, shape), (2 * h + 4 + 6 * f) / 4);
  shape.strategy.recompute = {.norm = true};  // no norm is a module of its own
  EXPECT_EQ(kept_per_token(config, shape), whole);
  shape.strategy.recompute = {.core = true};  // the projection keeps the output
  EXPECT_DOUBLE_EQ(whole - kept_per_token(config, shape), 4.0 * config.q_heads / 4);
}

// Elementwise traffic per token and launches of a layer: forward 20h + 8q + 8kv + 6f bytes in 14 kernels,
// backward 24h + 8q + 12kv + 10f in 25, all over t, without weight gradients.
TEST(TransformerEngine, MovesAndLaunchesWhatItsFusedKernelsDo) {
  for (const char* name : {"llama3-8b", "llama3-70b", "llama3-405b"}) {
    const ModelConfig m = model(name);
    const Shape shape{8192, 1, {.tp = 4, .sequence_parallel = true}};
    const auto layer = [&](UnitPass pass) {
      Work sum;
      for (const Unit unit : kLayerUnits) {
        const Work of_unit = work(m, shape, kTe, unit, pass);
        sum.replicated_bytes += of_unit.replicated_bytes + of_unit.sharded_bytes;
        sum.kernels += of_unit.kernels;
      }
      return sum;
    };
    const double h = m.hidden, q = m.q_heads * m.head_dim, kv = m.kv_heads * m.head_dim, f = m.ffn;
    const Work forward = layer(UnitPass::F), backward = layer(UnitPass::I);
    EXPECT_DOUBLE_EQ(forward.replicated_bytes, shape.tokens() * (20 * h + 8 * q + 8 * kv + 6 * f) / 4);
    EXPECT_DOUBLE_EQ(backward.replicated_bytes, shape.tokens() * (24 * h + 8 * q + 12 * kv + 10 * f) / 4);
    EXPECT_EQ(forward.kernels, 14);
    EXPECT_EQ(backward.kernels + layer(UnitPass::W_early).kernels + layer(UnitPass::W_late).kernels, 25);
  }
}

// Without a rotary embedding q, k and v stay where the GEMM wrote them: six kernels less than with one.
TEST(TransformerEngine, LaunchesNothingForLearnedPositions) {
  ModelConfig gpt = model("gpt-175b"), rotary = gpt;
  gpt.family = Family::gpt;
  rotary.family = Family::qwen2;
  const Shape shape{2048, 1, {.tp = 4, .sequence_parallel = true}};
  const auto kernels = [&](const ModelConfig& of, UnitPass pass) {
    return work(of, shape, kTe, Unit::attn, pass).kernels;
  };
  EXPECT_EQ(kernels(rotary, UnitPass::F) - kernels(gpt, UnitPass::F), 3);  // q needs no copy in either
  EXPECT_EQ(kernels(rotary, UnitPass::I) - kernels(gpt, UnitPass::I), 2);
}

TEST(TransformerEngine, CopiesTheNormsOutputIntoTheBuffersOfAnOverlap) {
  const ModelConfig m = model("llama3-70b");
  Shape shape{8192, 1, {.tp = 4, .sequence_parallel = true}};
  const auto bytes = [&](UnitPass pass) { return work(m, shape, kTe, Unit::mlp, pass).replicated_bytes; };
  const double forward = bytes(UnitPass::F), backward = bytes(UnitPass::I);
  shape.strategy.tp_overlap = TpOverlap::megatron;
  EXPECT_DOUBLE_EQ(bytes(UnitPass::F) - forward, shape.tokens() * 4 * m.hidden / 4);
  EXPECT_DOUBLE_EQ(bytes(UnitPass::I) - backward, shape.tokens() * 8 * m.hidden / 4);
}

TEST(ModelVariant, ChangesParametersAsItSays) {
  const ModelConfig nemotron = model("nemotron4-340b");  // LayerNorm, no biases, squared ReLU, untied head
  EXPECT_EQ(nemotron.layer_parameters(),
            18432.0 * (18432 + 2 * 8 * 192) + 18432.0 * 18432 + 2 * 18432.0 * 73728 + 4 * 18432);
  EXPECT_NEAR(nemotron.parameters() / 1e9, 341, 0.5);
  EXPECT_NEAR(model("nemotron4-15b").parameters() / 1e9, 15.6, 0.1);
  EXPECT_NEAR(model("llama3-8b").parameters() / 1e9, 8.03, 0.01);
  EXPECT_NEAR(model("llama3-70b").parameters() / 1e9, 70.55, 0.01);
  EXPECT_NEAR(model("llama3-405b").parameters() / 1e9, 405.9, 0.1);
}

}  // namespace
}  // namespace stp
