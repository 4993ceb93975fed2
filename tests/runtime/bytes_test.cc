// Bytes beyond those that checked_step.cc compares: of options beside each other, and by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/effort.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

// Of each rank in a step.
std::vector<Traffic> traffic_of(const std::string& schedule, int m, int layers, GridTraining training,
                                const Variant& variant) {
  divide_samples(training, variant);
  OnCpu run(training, program_of(schedule, training.grid, m, layers, variant));
  run.step();
  std::vector<Traffic> traffic;
  for (const RankUse& use : run.trainer.use()) traffic.push_back(use.traffic);
  return traffic;
}

TEST(Bytes, OfHalvesMoveAsManyAsWholeMicrobatches) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const bool sequence_parallel : {false, true})
      for (const Release release : {Release::chain, Release::released}) {
        if (!sampled() || shares_vocabulary(make_schedule(*generator, {2, 4}))) continue;
        const int layers = 2 * generator->chunks;
        auto training = small_training(layers, DType::f64, {.tp = 2, .pp = 2});
        training.seq = 8;
        Variant variant{.release = release, .sequence_parallel = sequence_parallel};
        const auto whole = traffic_of(generator->name, 4, layers, training, variant);
        variant.halves = true;
        SCOPED_TRACE(std::string(generator->name) + ", " + to_string(variant));
        const auto halves = traffic_of(generator->name, 4, layers, training, variant);
        for (size_t rank = 0; rank < whole.size(); ++rank) expect_same_traffic(halves[rank], whole[rank]);
      }
}

// A ring's t − 1 exchanges send (t − 1)/t of what they gather; pieces add up to what they are pieces of.
TEST(Bytes, OfOverlappedUnitsAreThoseOfTheirGathersAndScatters) {
  for (const int tp : {2, 4}) {
    const int layers = 4, m = 4;
    const auto training = small_training(layers, DType::f32, {.tp = tp});
    const auto traffic = [&](int overlapped_ranks) {
      return traffic_of("zb-v", m, layers, training,
                        {.sequence_parallel = true, .overlapped = overlapped_ranks})[0];
    };
    const Traffic plain = traffic(1), overlapped = traffic(tp);
    const int64_t tensor =
        int64_t{training.microbatch_size} * training.seq * training.model.hidden * int64_t{sizeof(float)};
    const int64_t gathers = int64_t{2} * 2 * layers * m;  // of attn and mlp, in F and I
    EXPECT_EQ(overlapped.exchanged_bytes, gathers * tensor * (tp - 1) / tp);
    EXPECT_EQ(plain.all_gather_bytes - overlapped.all_gather_bytes, gathers * tensor / tp);
    EXPECT_EQ(overlapped.reduce_scatter_bytes, plain.reduce_scatter_bytes);
  }
}

// By hand, of one rank with one layer and three microbatches, all forwards first. Columns of 12 rows.
TEST(Bytes, RecomputedTensorsAreHeldFromTheirInputGradientOn) {
  const ModelConfig model = small_model(1);
  const int h = model.hidden, f = model.ffn, q = model.q_heads * model.head_dim,
            qkv = q + 2 * model.kv_heads * model.head_dim;
  const int head = h + 1 + h + model.vocab;  // its norm's input, statistics and output; the logits
  const int norm = 1 + h, mlp = 2 * f + f,   // made again: statistics and output; gate, up, activation
      attn = qkv + q + model.q_heads;        // and QKV, the core's output and log-sum-exps
  const int mlp_gradients = 2 * f + h, attn_gradients = qkv + h;
  const auto peak = [&](const Recompute& recompute) {
    const auto training = small_training(1, DType::f32, {});
    OnCpu run(training, program_of("gpipe", training.grid, 3, 1, {.recompute = recompute}));
    run.step();
    return static_cast<double>(run.trainer.use()[0].peak_bytes.at("saved")) / (sizeof(float) * 12);
  };
  const auto expected = [&](int of_attn, int of_mlp, int attn_again, int mlp_again) {
    const int others = 2 * (of_attn + of_mlp + head);  // the two other microbatches
    const int during_mlp = of_attn + of_mlp + mlp_again + mlp_gradients;
    const int during_attn = of_attn + attn_again + attn_gradients;  // the MLP's are gone
    return std::max({others + of_attn + of_mlp + head, others + during_mlp, others + during_attn});
  };
  const int unit = h + norm;
  EXPECT_EQ(peak({}), expected(unit + attn, unit + mlp, 0, 0));
  EXPECT_EQ(peak({.mlp = true, .activation = true}), expected(unit + attn, unit, 0, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true, .activation = true}),
            expected(unit, unit, attn, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true, .activation = true, .norm = true}),
            expected(h, h, norm + attn, norm + mlp));
}

}  // namespace
}  // namespace stp
