// Orders that are made to share the vocabulary: what it gains, and what it costs beside the passes
// themselves. F = I = W = 1 a layer, 2p layers, the head worth two of them, and collectives and transfers of
// 0.1 and 0.02.
#include <gtest/gtest.h>

#include "baselines/registry.h"
#include "stp/schedule/share_vocabulary.h"
#include "support/effort.h"
#include "support/order_times.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

// Of all ranks together, F, I and W each; the embedding's F and W.
constexpr double kHead = 2, kEmbedding = 0.2;

double step(const Schedule& schedule, bool with_ends = true) {
  CostTable table = unit_costs(0);
  const int ranks = vocabulary_of(schedule) == Vocabulary::whole ? 1 : schedule.pp();
  for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late})
    table.at(Unit::head, pass) = with_ends ? kHead / ranks : 0;
  for (const UnitPass pass : {UnitPass::F, UnitPass::W_late})
    table.at(Unit::embedding, pass) = with_ends ? kEmbedding / ranks : 0;
  table.vocabulary = {0.1, 0.1, 0.1, 0.1, 0};
  table.transfer_within_node = 0.02;
  const std::vector<int> layers(schedule.placement.stages(), 2 / schedule.chunks());
  const Program program = lower(schedule, layers, {.embedding = true});
  return simulate(program, op_seconds(program, table)).step_s;
}

Schedule made_by(const char* name, int p, int m) {
  return make_schedule(find_generator(name), {.pp = p, .microbatches = m});
}

TEST(SharedVocabularyQuality, Of1f1bIsNoSlowerThanTheAuthorsOrders) {
  for (int p = 2; p <= 8; ++p)
    for (const int m : {4 * p, 6 * p}) {
      const Schedule plain = made_by("1f1b", p, m);
      EXPECT_LE(step(share_vocabulary(plain, Vocabulary::two_barriers)), step(made_by("vocab-1", p, m)));
      EXPECT_LE(step(share_vocabulary(plain, Vocabulary::one_barrier)), step(made_by("vocab-2", p, m)));
    }
}

// Against a step without ends, to which each rank's share of their work is added.
TEST(SharedVocabularyQuality, LosesLittleBesideThePassesThemselves) {
  Sample sampled;
  for (const auto& [p, m] : {std::pair{4, 16}, {8, 32}})
    for (const Generator* generator : generators()) {
      if (generator->slow || !sampled()) continue;
      const Schedule whole = made_by(generator->name, p, m);
      if (!is_single_and_whole(whole)) continue;
      const double least = step(whole, false) + m * (3 * kHead + 2 * kEmbedding) / p;
      EXPECT_LE(step(share_vocabulary(whole, Vocabulary::one_barrier)), 1.05 * least) << title(whole);
      EXPECT_LE(step(share_vocabulary(whole, Vocabulary::two_barriers)), 1.12 * least) << title(whole);
    }
}

}  // namespace
}  // namespace stp
