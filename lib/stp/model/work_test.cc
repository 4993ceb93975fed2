// The work of units and the bytes of collectives, against the formula of FLOPs and counts by hand.
#include "stp/model/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "stp/model/components.h"
#include "support/models.h"
#include "support/refusal.h"

namespace stp {
namespace {

using testing::HasSubstr;

TEST(Work, OfTheForwardsIsAThirdOfTheFormulasDenseFlopsExactly) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const auto forward = [&](Unit unit) {
      return gemm_flops(work(config, shape, implementation, unit, UnitPass::F));
    };
    const double all = config.layers * (forward(Unit::attn) + forward(Unit::mlp)) + forward(Unit::head);
    const double attention = 6.0 * config.layers * config.hidden * shape.seq * shape.seq;
    EXPECT_EQ(3 * all * shape.strategy.tp,
              (model_flops(config, shape.seq) - attention) * shape.microbatch_size);
  });
}

TEST(Work, OfTheAttentionIsCausalAndOnceAndAHalfMoreBackwardThanTheFormulaCounts) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const Work forward = work(config, shape, implementation, Unit::attn, UnitPass::F);
    const Work backward = work(config, shape, implementation, Unit::attn, UnitPass::I);
    // The formula: 6·h·s a token and layer, forward and twice that backward.
    EXPECT_EQ(attention_flops(forward, false) * shape.strategy.tp,
              2.0 * config.hidden * shape.seq * shape.tokens());
    EXPECT_EQ(attention_flops(backward, true), 2.5 * attention_flops(forward, false));
    EXPECT_EQ(attention_flops(forward, true), 0);
    EXPECT_EQ(attention_flops(backward, false), 0);
    for (const UnitPass pass : kUnitPasses) {
      for (const Unit unit : kGemmUnits) {
        if (unit == Unit::attn && (pass == UnitPass::F || pass == UnitPass::I)) continue;
        const Work other = work(config, shape, implementation, unit, pass);
        EXPECT_EQ(attention_flops(other, false) + attention_flops(other, true), 0) << to_string(unit, pass);
      }
    }
  });
}

TEST(Work, PutsTheRowParallelLinearsIntoTheEarlyWeightGradients) {
  const ModelConfig config = model("llm-12.1b");
  const Shape shape{6144, 1, {.tp = 8}};
  const auto flops = [&](Unit unit, UnitPass pass) {
    return gemm_flops(work(config, shape, Implementation::suite, unit, pass));
  };
  const double h = 5120, tokens = 6144;
  EXPECT_EQ(flops(Unit::attn, UnitPass::W_early), 2 * tokens * h * (h / 8));               // proj
  EXPECT_EQ(flops(Unit::attn, UnitPass::W_late), 2 * tokens * h * (h + 2 * 8 * 128) / 8);  // QKV
  EXPECT_EQ(flops(Unit::mlp, UnitPass::W_early), 2 * tokens * h * (18944.0 / 8));          // fc2
  EXPECT_EQ(flops(Unit::mlp, UnitPass::W_late), 2 * tokens * h * 2 * (18944.0 / 8));       // fc1
  EXPECT_EQ(flops(Unit::head, UnitPass::W_early), 0);
  EXPECT_EQ(flops(Unit::head, UnitPass::W_late), 2 * tokens * h * (152064.0 / 8));
}

TEST(Work, OfTheGradientsHasTheGemmsTransposed) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto gemms = [&](UnitPass pass) { return work(config, shape, implementation, unit, pass).gemms; };
      const std::vector<Gemm> forward = gemms(UnitPass::F), input = gemms(UnitPass::I);
      std::vector<Gemm> weights = gemms(UnitPass::W_late);  // of the first linear
      for (const Gemm& gemm : gemms(UnitPass::W_early)) weights.push_back(gemm);
      ASSERT_EQ(input.size(), forward.size());
      ASSERT_EQ(weights.size(), forward.size());
      for (size_t i = 0; i < forward.size(); ++i) {
        EXPECT_EQ(input[i].n, forward[i].k);                                  // as wide as the linear's input
        EXPECT_EQ(input[i].k, forward[i].n);                                  // summed over its outputs
        EXPECT_EQ(weights[i].m * weights[i].n, forward[i].n * forward[i].k);  // as many as there are weights
      }
    }
  });
}

TEST(Work, OfWReadsAndWritesAnFp32GradientPerWeightWhateverTheTokens) {
  for (const std::string& name : kModels) {
    const ModelConfig config = model(name);
    for (const auto implementation : {Implementation::megatron, Implementation::suite}) {
      const auto bytes = [&](const Shape& shape) {
        double sum = 0;
        for (const Unit unit : {Unit::attn, Unit::mlp})
          for (const UnitPass pass : {UnitPass::W_early, UnitPass::W_late})
            sum += work(config, shape, implementation, unit, pass).sharded_bytes;
        return sum;
      };
      const double h = config.hidden, q = config.q_heads * config.head_dim,
                   kv = config.kv_heads * config.head_dim;
      const double weights = h * (q + 2 * kv) + q * h + 3 * h * config.ffn;  // no bias, no norm
      EXPECT_DOUBLE_EQ(bytes({4096, 1, {.tp = 8}}), 8 * weights / 8);
      EXPECT_EQ(bytes({8192, 3, {.tp = 8}}), bytes({1024, 1, {.tp = 8}}));
    }
  }
}

TEST(Work, OfTheEmbeddingIsTrafficOfTokensAndOfAllItsWeightsUnfused) {
  const ModelConfig config = model("llm-12.1b");
  const auto of = [&](const Shape& shape, Implementation implementation, UnitPass pass) {
    const Work w = work(config, shape, implementation, Unit::embedding, pass);
    EXPECT_TRUE(w.gemms.empty());
    EXPECT_EQ(attention_flops(w, false) + attention_flops(w, true) + w.replicated_bytes, 0);
    return w.sharded_bytes;
  };
  const double hidden = 2 * 6144.0 * 5120, weights = 152064.0 * 5120;
  for (const int tp : {1, 4, 8}) {
    const Shape shape{6144, 1, {.tp = tp}}, twice{6144, 2, {.tp = tp}};
    EXPECT_EQ(of(shape, Implementation::megatron, UnitPass::F), 3 * hidden);  // every rank, whatever tp
    EXPECT_DOUBLE_EQ(of(shape, Implementation::megatron, UnitPass::W_late), 2 * hidden + 12 * weights / tp);
    EXPECT_DOUBLE_EQ(of(twice, Implementation::megatron, UnitPass::W_late), 4 * hidden + 12 * weights / tp);
    // Fused, nothing grows with the vocabulary.
    EXPECT_DOUBLE_EQ(of(twice, Implementation::suite, UnitPass::W_late),
                     2 * of(shape, Implementation::suite, UnitPass::W_late));
    EXPECT_LT(of(shape, Implementation::suite, UnitPass::W_late),
              of(shape, Implementation::megatron, UnitPass::W_late));
    for (const UnitPass none : {UnitPass::I, UnitPass::W_early})
      EXPECT_EQ(work(config, shape, Implementation::megatron, Unit::embedding, none).kernels, 0);
  }
  EXPECT_THAT(saved_tensors(config, {6144, 1, {.tp = 4}}, Implementation::megatron, Unit::embedding),
              testing::IsEmpty());
}

TEST(Work, IsDividedByTensorParallelismButForWhatEveryRankRepeats) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const int tp = shape.strategy.tp;
    for (const Unit unit : kGemmUnits) {
      for (const UnitPass pass : kUnitPasses) {
        shape.strategy.tp = tp;
        const Work divided = work(config, shape, implementation, unit, pass);
        shape.strategy.tp = 1;
        const Work whole = work(config, shape, implementation, unit, pass);
        EXPECT_DOUBLE_EQ(gemm_flops(divided) * tp, gemm_flops(whole));
        EXPECT_DOUBLE_EQ(attention_flops(divided, false) * tp, attention_flops(whole, false));
        EXPECT_DOUBLE_EQ(attention_flops(divided, true) * tp, attention_flops(whole, true));
        EXPECT_DOUBLE_EQ(divided.sharded_bytes * tp, whole.sharded_bytes);
        EXPECT_EQ(divided.replicated_bytes, whole.replicated_bytes);
        EXPECT_EQ(divided.kernels, whole.kernels);
        const bool weights = pass == UnitPass::W_early || pass == UnitPass::W_late;
        for (const Gemm& gemm : divided.gemms) EXPECT_EQ(weights ? gemm.k : gemm.m, shape.tokens());
      }
    }
  });
}

TEST(Work, OfARingsRanksIsThatOfTheWholeSequenceDividedEvenly) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const Work whole = work(config, shape, implementation, Unit::attn, UnitPass::F);
    shape.strategy.cp = 4;
    EXPECT_EQ(shape.tokens(), shape.seq * shape.microbatch_size / 4);
    EXPECT_EQ(exchange_bytes(config, shape, Exchange::kv),
              2 * 2.0 * shape.tokens() * config.kv_heads * config.head_dim / shape.strategy.tp);
    const Work own = work(config, shape, implementation, Unit::attn, UnitPass::F);
    EXPECT_EQ(4 * gemm_flops(own), gemm_flops(whole));
    EXPECT_EQ(4 * attention_flops(own, false), attention_flops(whole, false));
    EXPECT_EQ(4 * own.replicated_bytes, whole.replicated_bytes);
    EXPECT_GT(4 * own.sharded_bytes, whole.sharded_bytes);  // results of steps are merged
  });
}

// All rows of a share of the heads are as much as a ring's steps, and nothing is merged; but the core's own
// output is kept beside that of the own rows.
TEST(Work, OfExchangedHeadsIsThatOfARing) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    const Work whole = work(config, shape, implementation, Unit::attn, UnitPass::I);
    shape.strategy.cp = 4;
    const auto bytes = [&] {
      double sum = 0;
      for (const SavedTensor& each : saved_tensors(config, shape, implementation, Unit::attn))
        sum += each.bytes;
      return sum;
    };
    const double of_ring = bytes();
    shape.strategy.cp_method = CpMethod::all_to_all;
    const Work own = work(config, shape, implementation, Unit::attn, UnitPass::I);
    EXPECT_EQ(4 * attention_flops(own, true), attention_flops(whole, true));
    EXPECT_EQ(4 * own.sharded_bytes, whole.sharded_bytes);
    EXPECT_EQ(own.kernels, whole.kernels);
    EXPECT_EQ(bytes(), of_ring + exchange_bytes(config, shape, Exchange::output));
    const Work core = unit_part_work(config, shape, implementation, Unit::attn, UnitPass::I, UnitPart::core);
    EXPECT_EQ(attention_flops(core, true), attention_flops(own, true));
  });
}

// A core that is recomputed is issued as F's.
Work sum_of_parts(const ModelConfig& config, Implementation implementation, const Shape& shape, Unit unit,
                  UnitPass pass) {
  Work sum;
  for (const UnitPart part : {UnitPart::norm, UnitPart::before, UnitPart::core, UnitPart::after})
    for (const UnitPass of : {pass, UnitPass::F}) {
      const bool again = part == UnitPart::core && pass == UnitPass::I &&
                         is_recomputed(shape.strategy.recompute, unit, ComponentKind::core);
      if (of != pass && !again) continue;
      for (int step = 0; step < shape.strategy.steps(unit, of, part); ++step) {
        const Work w = unit_part_work(config, shape, implementation, unit, of, part, step);
        sum.gemms.insert(sum.gemms.end(), w.gemms.begin(), w.gemms.end());
        sum.attentions.insert(sum.attentions.end(), w.attentions.begin(), w.attentions.end());
        sum.replicated_bytes += w.replicated_bytes;
        sum.sharded_bytes += w.sharded_bytes;
        sum.kernels += w.kernels;
      }
      if (pass == UnitPass::F) break;
    }
  return sum;
}

// Of steps of a ring, and of overlapped ones, which launch a GEMM each: all else of their parts is there
// once.
TEST(Work, OfPartsAddsUpToTheUnits) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, Shape shape) {
    shape.seq = shape.seq / 6 * 6;
    for (const bool ring : {true, false})
      for (const auto& [name, recompute] : kRecomputes)
        for (const Unit unit : {Unit::attn, Unit::mlp})
          for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
            shape.strategy.recompute = recompute;
            shape.strategy.cp = ring ? 3 : 1;
            shape.strategy.sequence_parallel = !ring;
            shape.strategy.tp_overlap = ring ? TpOverlap::none : TpOverlap::megatron;
            if (!ring) shape.strategy.tp = 4;
            if (!shape.strategy.divides(unit)) continue;
            const Work whole = work(config, shape, implementation, unit, pass),
                       sum = sum_of_parts(config, implementation, shape, unit, pass);
            EXPECT_DOUBLE_EQ(gemm_flops(sum), gemm_flops(whole));
            EXPECT_DOUBLE_EQ(attention_flops(sum, false), attention_flops(whole, false));
            EXPECT_DOUBLE_EQ(attention_flops(sum, true), attention_flops(whole, true));
            EXPECT_DOUBLE_EQ(sum.replicated_bytes, whole.replicated_bytes);
            EXPECT_DOUBLE_EQ(sum.sharded_bytes, whole.sharded_bytes);
            // The suite makes its residual with each piece, in two kernels.
            const int of_pieces = implementation == Implementation::suite ? 3 * 3 + 1 : 3;
            const int more = ring ? 0 : 3 + (pass == UnitPass::F ? of_pieces : 0);
            EXPECT_EQ(sum.kernels, whole.kernels + more);
          }
  });
}

TEST(Work, DiffersBetweenImplementationsInTrafficOnly) {
  const ModelConfig config = model("llm-26.3b");
  const Shape shape{4096, 1, {.tp = 8}};
  for (const Unit unit : kGemmUnits) {
    for (const UnitPass pass : kUnitPasses) {
      const Work unfused = work(config, shape, Implementation::megatron, unit, pass);
      const Work fused = work(config, shape, Implementation::suite, unit, pass);
      EXPECT_EQ(gemm_flops(unfused), gemm_flops(fused));
      EXPECT_EQ(attention_flops(unfused, false), attention_flops(fused, false));
      EXPECT_GE(unfused.replicated_bytes, fused.replicated_bytes);
      EXPECT_GE(unfused.sharded_bytes, fused.sharded_bytes);
      if (pass == UnitPass::F || pass == UnitPass::I) {
        EXPECT_GT(unfused.replicated_bytes, fused.replicated_bytes);
      }
    }
  }
}

// The loss reads the logits twice, for the sums and for the gradient, which it writes in their place.
TEST(Work, OfTheSuitesLossMovesTheLogitsThreeTimesInTheForward) {
  const ModelConfig config = model("llm-26.3b");
  const Shape shape{4096, 1, {.tp = 8}};
  const auto moved = [&](UnitPass pass) {
    return work(config, shape, Implementation::suite, Unit::head, pass).sharded_bytes;
  };
  EXPECT_DOUBLE_EQ(moved(UnitPass::F), 3 * 2.0 * shape.tokens() * config.vocab / 8);
  EXPECT_EQ(moved(UnitPass::I), 0);
}

// A model may state its head_dim; q_heads · head_dim may then differ from hidden. The MFU must count the
// FLOPs that the units do.
TEST(Work, EqualsTheFormulaWhereTheHeadsAreNotAsWideAsTheModel) {
  const ModelConfig config{"wide heads", 4, 1024, 4096, 16, 4, 128, 32000};  // q is 2048 wide
  const Shape shape{2048, 1};
  const auto forward = [&](Unit unit) {
    return work(config, shape, Implementation::suite, unit, UnitPass::F);
  };
  const double gemms = config.layers * (gemm_flops(forward(Unit::attn)) + gemm_flops(forward(Unit::mlp))) +
                       gemm_flops(forward(Unit::head));
  const double attention = config.layers * attention_flops(forward(Unit::attn), false);
  EXPECT_DOUBLE_EQ(model_flops(config, shape.seq), 3 * (gemms + attention));
}

TEST(SequenceParallelism, DividesNormsDropoutAndResidualsAndNothingElse) {
  for (const auto implementation :
       {Implementation::megatron, Implementation::suite, Implementation::megatron_2022}) {
    for (const std::string name : {"llm-12.1b", "gpt-22b"}) {
      for (const Unit unit : kGemmUnits) {
        for (const UnitPass pass : kUnitPasses) {
          const Shape shape{2048, 2, {.tp = 4}};
          const Work whole = work(model(name), shape, implementation, unit, pass);
          const Work divided =
              work(model(name), {2048, 2, {.tp = 4, .sequence_parallel = true}}, implementation, unit, pass);
          // The suite then adds the residual apart, else the GEMM reads it: three tensors, or one.
          const bool apart =
              implementation == Implementation::suite && unit != Unit::head && pass == UnitPass::F;
          EXPECT_DOUBLE_EQ(divided.replicated_bytes * 4,
                           whole.replicated_bytes + (apart ? 2 * hidden_bytes(model(name), shape) : 0));
          EXPECT_EQ(divided.sharded_bytes, whole.sharded_bytes);
          EXPECT_EQ(gemm_flops(divided), gemm_flops(whole));
        }
      }
    }
  }
}

TEST(OptimizerBytes, AreAdamsAndWhatTheFrameworkAddsAroundIt) {
  EXPECT_EQ(optimizer_bytes(Implementation::suite),
            30);  // gradient, master and moments there and back, weight
  EXPECT_GT(optimizer_bytes(Implementation::megatron), optimizer_bytes(Implementation::suite));
  // fp16's loss scale: gradients read and written once more.
  EXPECT_EQ(optimizer_bytes(Implementation::megatron_2022), optimizer_bytes(Implementation::megatron) + 8);
}

TEST(HiddenBytes, AreThoseOfThePapersAllReduces) {
  EXPECT_EQ(hidden_bytes(model("llm-12.1b"), {6144, 1, {.tp = 8}}), 60.0 * 1024 * 1024);
  EXPECT_EQ(hidden_bytes(model("llm-12.1b"), {3072, 2, {.tp = 4}}), 60.0 * 1024 * 1024);
  EXPECT_NEAR(hidden_bytes(model("llm-26.3b"), {4096, 1, {.tp = 8}}) / 1e6, 58.7, 0.05);
}

TEST(CheckShardable, RefusesWhatDoesNotDivideAndNamesIt) {
  for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(refusal([&] { check_shardable(model("llm-12.1b"), tp); }), "");
  EXPECT_THAT(refusal([&] { check_shardable(model("llm-12.1b"), 3); }),
              testing::AllOf(testing::StartsWith("parallel.tp: 3 "), HasSubstr("40 attention heads")));
  EXPECT_THAT(refusal([&] { check_shardable(model("llm-12.1b"), 20); }), HasSubstr("8 key and value heads"));
  EXPECT_THAT(refusal([] {
                check_shardable({"m", 1, 12, 10, 12, 12, 1, 12}, 3);
              }),
              HasSubstr("10 feed-forward columns"));
  EXPECT_THAT(refusal([] {
                check_shardable({"m", 1, 12, 12, 12, 12, 1, 10}, 3);
              }),
              HasSubstr("10 vocabulary entries of m"));
  ModelConfig with{"m", 1, 12, 12, 12, 12, 1, 12};
  with.vision = {2, 20, 10, 80};
  EXPECT_THAT(refusal([&] { check_shardable(with, 4); }),
              HasSubstr("4 does not divide the 10 attention heads of the vision encoder of m"));
  EXPECT_EQ(refusal([&] { check_shardable(with, 2); }), "");
}

// The tensors that units save for their backward: names, bytes, and who makes them.

double total(const std::vector<SavedTensor>& tensors) {
  double sum = 0;
  for (const SavedTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

TEST(SavedTensors, GrowWithTheTokensAlone) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const double bytes = total(saved_tensors(config, shape, implementation, unit));
      EXPECT_GT(bytes, 0);
      EXPECT_EQ(total(saved_tensors(config, {2 * shape.seq, shape.microbatch_size, {.tp = shape.strategy.tp}},
                                    implementation, unit)),
                2 * bytes);
      EXPECT_EQ(total(saved_tensors(config, {shape.seq, 2 * shape.microbatch_size, {.tp = shape.strategy.tp}},
                                    implementation, unit)),
                2 * bytes);
    }
  });
}

TEST(SavedTensors, AreEachEitherShardedOrWholeOnEveryRank) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    for (const Unit unit : kGemmUnits) {
      const auto whole = saved_tensors(config, {shape.seq, shape.microbatch_size}, implementation, unit);
      const auto divided = saved_tensors(config, shape, implementation, unit);
      ASSERT_EQ(whole.size(), divided.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(whole[i].which, divided[i].which);
        const std::string name = to_string(whole[i].which);
        // Tensors as wide as the model are unsharded on every rank: norms' inputs and outputs, outputs'
        // gradients.
        const bool replicated = name.find("norm") != std::string::npos || name == "dropout mask" ||
                                name == "gradient of the output";
        EXPECT_DOUBLE_EQ(divided[i].bytes, replicated ? whole[i].bytes : whole[i].bytes / shape.strategy.tp)
            << name;
      }
    }
  });
}

TEST(SavedTensors, OfTheFusedUnitsAreTheInputsOfTheirKernels) {
  // One token of a tiny model, bf16: hidden 8, q 8, k and v 4 each, ffn 20, vocabulary 50.
  const ModelConfig tiny{"tiny", 3, 8, 20, 4, 2, 2, 50};
  std::map<std::string, double> bytes;
  for (const Unit unit : kGemmUnits)
    for (const SavedTensor& tensor : saved_tensors(tiny, {1, 1}, Implementation::suite, unit))
      bytes[to_string(unit) + ": " + to_string(tensor.which) + (tensor.made_by_forward ? "" : ", by I") +
            (tensor.weight_gradient ? ", for W" : "")] = tensor.bytes;
  const std::map<std::string, double> expected{
      {"attn: norm input", 16},
      {"attn: norm statistics", 4},
      {"attn: norm output, for W", 16},
      {"attn: q, k, v", 32},
      {"attn: attention output, for W", 16},
      {"attn: log-sum-exp", 16},
      {"attn: gradient of the first linear's output, by I, for W", 32},
      {"attn: gradient of the output, by I, for W", 16},
      {"mlp: norm input", 16},
      {"mlp: norm statistics", 4},
      {"mlp: norm output, for W", 16},
      {"mlp: fc1 output", 80},
      {"mlp: activation, for W", 40},
      {"mlp: gradient of the first linear's output, by I, for W", 80},
      {"mlp: gradient of the output, by I, for W", 16},
      {"head: norm input", 16},
      {"head: norm statistics", 4},
      {"head: norm output, for W", 16},
      {"head: gradient of the logits, for W", 100}};
  EXPECT_EQ(bytes, expected);
}

TEST(SavedTensors, TakeMoreMemoryUnfused) {
  const Shape shape{6144, 1, {.tp = 4}};
  for (const Unit unit : kGemmUnits)
    EXPECT_GT(total(saved_tensors(model("llm-12.1b"), shape, Implementation::megatron, unit)),
              total(saved_tensors(model("llm-12.1b"), shape, Implementation::suite, unit)));
}

}  // namespace
}  // namespace stp
