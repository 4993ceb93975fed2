// What recomputation adds to the work and leaves out of the saved tensors, and both in Megatron-LM of 2022,
// against the closed forms of Korthikanti et al., arXiv 2205.05198.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stp/model/work.h"
#include "support/models.h"

namespace stp {
namespace {

// ---- Megatron-LM of 2022 ----

constexpr Recompute kNone{}, kSelective{.core = true}, kFull{.layer = true};

Shape shape_of_2022(int tp, bool sequence_parallel, Recompute recompute) {
  return {2048, 2, {.tp = tp, .sequence_parallel = sequence_parallel, .recompute = recompute}};
}
const std::vector<std::string> kGpts{"gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"};

TEST(WorkOf2022, HasTheFlopsOfItsAppendix) {
  for (const std::string& name : kGpts) {
    const ModelConfig config = model(name);
    for (const bool sequence_parallel : {false, true}) {
      for (const Recompute recompute : {kNone, kSelective}) {
        const Shape shape = shape_of_2022(8, sequence_parallel, recompute);
        const auto flops = [&](UnitPass pass) {
          double sum = 0;
          for (const Unit unit : {Unit::attn, Unit::mlp})
            sum += gemm_flops(work(config, shape, Implementation::megatron_2022, unit, pass));
          return sum * shape.strategy.tp;
        };
        // A layer's forward is 24Bsh²(1 + s/6h), the scores that the mask drops included; the backward twice
        // that, and with selective recomputation the core once more.
        const double h = config.hidden, s = shape.seq, tokens = shape.tokens();
        const double linear = 24 * tokens * h * h, core = 4 * tokens * s * h;
        EXPECT_DOUBLE_EQ(flops(UnitPass::F), linear + core);
        EXPECT_DOUBLE_EQ(flops(UnitPass::I), linear + (recompute == kSelective ? 3 : 2) * core);
        EXPECT_DOUBLE_EQ(flops(UnitPass::W_early) + flops(UnitPass::W_late), linear);
      }
    }
  }
}

TEST(WorkOf2022, AddsTheCoresForwardToItsBackwardWhereThatIsRecomputed) {
  const ModelConfig config = model("gpt-175b");
  const auto of = [&](Recompute recompute, UnitPass pass) {
    return work(config, shape_of_2022(8, false, recompute), Implementation::megatron_2022, Unit::attn, pass);
  };
  const Work kept = of(kNone, UnitPass::I), again = of(kSelective, UnitPass::I);
  // Scores: tokens · s per head; a softmax and a dropout of 4 tensors of two bytes.
  EXPECT_DOUBLE_EQ(again.sharded_bytes - kept.sharded_bytes, 4 * 2 * 2 * 2048.0 * 2048 * 96 / 8);
  EXPECT_EQ(again.replicated_bytes, kept.replicated_bytes);
  EXPECT_EQ(again.gemms.size(), kept.gemms.size() + 2);
  EXPECT_GT(again.kernels, kept.kernels);
  // Full recomputation is segments of its own, not a longer backward.
  EXPECT_EQ(of(kFull, UnitPass::I).sharded_bytes, kept.sharded_bytes);
  EXPECT_EQ(of(kSelective, UnitPass::F).sharded_bytes, of(kNone, UnitPass::F).sharded_bytes);
}

// Their Table 2, per layer: sbh(10 + 24/t + 5as/(ht)), with sequence parallelism sbh/t(34 + 5as/h), and with
// selective recomputation without the last term.
TEST(SavedTensorsOf2022, AreThoseOfTheClosedForms) {
  for (const std::string& name : kGpts) {
    const ModelConfig config = model(name);
    const auto bytes = [&](int tp, bool sequence_parallel, Recompute recompute) {
      const Shape shape = shape_of_2022(tp, sequence_parallel, recompute);
      return kept_bytes(config, shape, Implementation::megatron_2022, Unit::attn) +
             kept_bytes(config, shape, Implementation::megatron_2022, Unit::mlp);
    };
    const double h = config.hidden, s = 2048, a = config.q_heads, sbh = s * 2 * h;
    for (const double t : {1.0, 2.0, 8.0}) {
      const int tp = static_cast<int>(t);
      EXPECT_DOUBLE_EQ(bytes(tp, false, kNone), sbh * (10 + 24 / t + 5 * a * s / (h * t)));
      EXPECT_DOUBLE_EQ(bytes(tp, true, kNone), sbh / t * (34 + 5 * a * s / h));
      EXPECT_DOUBLE_EQ(bytes(tp, false, kSelective), sbh * (10 + 24 / t));
      EXPECT_DOUBLE_EQ(bytes(tp, true, kSelective), sbh * 34 / t);
    }
  }
}

// ---- recomputation by sets of units ----

constexpr Recompute kMlp{.mlp = true, .activation = true},
    kAttnMlp{.core = true, .qkv = true, .mlp = true, .activation = true},
    kAttnMlpNorm{.core = true, .qkv = true, .mlp = true, .activation = true, .norm = true};

TEST(Recomputation, OfAUnitIsItsFirstLinearAndUnderAutogradItsSecondToo) {
  const ModelConfig config = model("llm-12.1b");
  // Of one of four ranks: the GEMMs of gate and up, down, QKV (8 heads of 128 for keys and values),
  // projection.
  const double of_tokens = 2 * 6144.0 * 5120 / 4, gate_up = of_tokens * 2 * 18944, down = of_tokens * 18944,
               qkv = of_tokens * (5120 + 2 * 1024), projection = of_tokens * 5120;
  for (const Implementation implementation : {Implementation::suite, Implementation::megatron}) {
    const bool both = implementation == Implementation::megatron;
    const auto of = [&](const Recompute& recompute, Unit unit, UnitPass pass) {
      return work(config, {6144, 1, {.tp = 4, .recompute = recompute}}, implementation, unit, pass);
    };
    for (const Recompute& recompute : {kMlp, kAttnMlp, kAttnMlpNorm}) {
      for (const Unit unit : {Unit::attn, Unit::mlp}) {
        const Work kept = of(kNone, unit, UnitPass::I), again = of(recompute, unit, UnitPass::I),
                   forward = of(kNone, unit, UnitPass::F);
        const bool whole = unit == Unit::mlp || recompute.qkv;
        const double first = unit == Unit::mlp ? gate_up : qkv,
                     second = unit == Unit::mlp ? down : projection;
        EXPECT_DOUBLE_EQ(gemm_flops(again) - gemm_flops(kept), whole ? first + (both ? second : 0) : 0);
        EXPECT_DOUBLE_EQ(again.sharded_bytes - kept.sharded_bytes, whole ? forward.sharded_bytes : 0);
        EXPECT_EQ(attention_flops(again, false), whole ? attention_flops(forward, false) : 0);
        // A norm reads and writes when fused; unfused, 18 tensors of hidden.
        EXPECT_DOUBLE_EQ(again.replicated_bytes - kept.replicated_bytes,
                         recompute.norm ? (both ? 18 : 2) * 6144.0 * 5120 * 2 : 0);
        EXPECT_EQ(again.kernels > kept.kernels, whole);
        for (const UnitPass pass : {UnitPass::F, UnitPass::W_early, UnitPass::W_late})
          EXPECT_EQ(gemm_flops(of(recompute, unit, pass)), gemm_flops(of(kNone, unit, pass)));
      }
      EXPECT_EQ(gemm_flops(of(recompute, Unit::head, UnitPass::I)),
                gemm_flops(of(kNone, Unit::head, UnitPass::I)));
    }
  }
}

TEST(Recomputation, MakesAgainWhatTheForwardDropsAndNothingElse) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const auto& [name, recompute] : kRecomputes) {
      if (recompute.layer) continue;  // segments of the Program
      Shape recomputed = shape;
      recomputed.strategy.recompute = recompute;
      for (const Unit unit : kGemmUnits) {
        const auto all = saved_tensors(config, shape, implementation, unit),
                   again = saved_tensors(config, recomputed, implementation, unit);
        ASSERT_EQ(all.size(), again.size()) << name;
        for (size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].which, again[i].which);
          EXPECT_EQ(all[i].bytes, again[i].bytes);
          EXPECT_EQ(all[i].weight_gradient, again[i].weight_gradient);
          EXPECT_EQ(all[i].made_by_forward, again[i].made_by_forward || again[i].recomputed()) << name;
          if (unit == Unit::head) {
            EXPECT_FALSE(again[i].recomputed()) << name;
          }
        }
      }
    }
  });
}

TEST(Recomputation, LeavesTheInputsOfItsParts) {
  // One token of a tiny model, bf16: hidden 8, q 8, k and v 4 each, ffn 20; kept by attention and MLP.
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};
  const auto kept = [&](const Recompute& recompute, Implementation implementation, Unit unit) {
    return kept_bytes(tiny, {1, 1, {.recompute = recompute}}, implementation, unit);
  };
  constexpr auto kSuite = Implementation::suite, kMegatron = Implementation::megatron;
  // The norm's input, statistics and output.
  EXPECT_EQ(kept(kMlp, kSuite, Unit::mlp), 16 + 4 + 16);
  EXPECT_EQ(kept(kMlp, kSuite, Unit::attn), kept(kNone, kSuite, Unit::attn));
  EXPECT_EQ(kept(kAttnMlp, kSuite, Unit::attn), 16 + 4 + 16);
  for (const Unit unit : {Unit::attn, Unit::mlp}) {
    EXPECT_EQ(kept(kAttnMlpNorm, kSuite, unit), 16);
    // What an unfused norm and dropout keep: the input in fp32, normalised, a mask; and the norm's output.
    EXPECT_EQ(kept(kAttnMlp, kMegatron, unit), 32 + 16 + 8 + 16);
    EXPECT_EQ(kept(kAttnMlpNorm, kMegatron, unit), 32 + 16 + 8);
  }
}

}  // namespace
}  // namespace stp
