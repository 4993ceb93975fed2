#include "stp/cost/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace stp {
namespace {

using ::testing::ElementsAre;

bool all_fit(int /*rank*/, const std::vector<int>& /*layers*/) { return true; }

// Calls visit(split) for every split of `layers` layers.
template <typename Visit>
void for_each_split(std::vector<int>& split, size_t stage, int layers, const Visit& visit) {
  if (stage + 1 == split.size()) {
    split[stage] = layers;
    visit(split);
    return;
  }
  for (int here = 0; here <= layers; ++here) {
    split[stage] = here;
    for_each_split(split, stage + 1, layers - here, visit);
  }
}

bool fits_everywhere(const std::vector<int>& split, const Placement& placement, const Fits& fits) {
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    std::vector<int> of_chunks;
    for (int chunk = 0; chunk < placement.chunks(); ++chunk)
      of_chunks.push_back(split[placement.stage(rank, chunk)]);
    if (!fits(rank, of_chunks)) return false;
  }
  return true;
}

int largest(const std::vector<int>& split) { return *std::max_element(split.begin(), split.end()); }

struct Found {
  double bottleneck = std::numeric_limits<double>::infinity();
  int largest = std::numeric_limits<int>::max();  // of splits with that
};

Found by_brute_force(int layers, const SplitCosts& costs, const Placement& placement, int first,
                     const Fits& fits) {
  Found best;
  std::vector<std::pair<double, int>> all;
  std::vector<int> split(placement.stages());
  for_each_split(split, 0, layers, [&](const std::vector<int>& each) {
    if ((first > 0 && each[0] > 0) || !fits_everywhere(each, placement, fits)) return;
    all.emplace_back(bottleneck_seconds(costs, each, placement), largest(each));
    best.bottleneck = std::min(best.bottleneck, all.back().first);
  });
  for (const auto& [bottleneck, most] : all)
    if (bottleneck <= best.bottleneck * (1 + 1e-9)) best.largest = std::min(best.largest, most);
  return best;
}

std::vector<Placement> placements() {
  std::vector<Placement> all{Placement::loop(1, 1), Placement::loop(3, 1),
                             Placement::loop(5, 1), Placement::loop(1, 2),
                             Placement::loop(2, 2), Placement::loop(3, 2),
                             Placement::v(1),       Placement::v(2),
                             Placement::v(3),       Placement::table({{3, 1}, {0, 2}})};
  return all;
}

TEST(Balance, FindsTheSmallestBottleneckOfAllSplits) {
  std::mt19937 random(1);
  const auto draw = [&](double most) { return std::uniform_real_distribution<>(0, most)(random); };
  int refused = 0;
  for (const Placement& placement : placements()) {
    for (int round = 0; round < 60; ++round) {
      const int stages = placement.stages();
      const int layers = static_cast<int>(draw(stages > 5 ? 9 : 16));
      const int first = round % 3 == 0 && stages > 1 ? 1 : 0;
      // In round numbers times are often equal.
      SplitCosts costs{round % 2 == 0 ? 1 : 0.5 + draw(1), std::vector<double>(stages, 0)};
      costs.stage.front() = round % 2 == 0 ? std::floor(draw(5)) : draw(5);
      costs.stage.back() += round % 2 == 0 ? std::floor(draw(3)) : draw(3);
      if (round % 5 == 0) costs.again = round % 2 == 0 ? 0.5 : draw(1), costs.first = 1 + round % 3;
      // A layer of the first chunk is alive longer.
      const double memory = round % 4 < 2 ? 1e9 : draw(2.5 * layers), longer = 1 + draw(1);
      const Fits fits = [&](int rank, const std::vector<int>& of_chunks) {
        return longer * of_chunks[0] + (of_chunks.size() > 1 ? of_chunks[1] : 0) + 0.1 * rank <= memory;
      };
      SCOPED_TRACE(placement.name() + " p " + std::to_string(placement.ranks()) + ", round " +
                   std::to_string(round));
      const Found best = by_brute_force(layers, costs, placement, first, fits);
      const auto split = balanced_partition(layers, costs, placement, first, fits);
      ASSERT_EQ(split.has_value(), best.bottleneck < 1e9);
      refused += split ? 0 : 1;
      if (!split) continue;
      EXPECT_EQ(std::accumulate(split->begin(), split->end(), 0), layers);
      EXPECT_TRUE(first == 0 || split->front() == 0);
      EXPECT_TRUE(fits_everywhere(*split, placement, fits));
      EXPECT_LE(bottleneck_seconds(costs, *split, placement), best.bottleneck * (1 + 1e-9));
      EXPECT_EQ(largest(*split), best.largest);
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(Balance, LayersThatDifferAreDividedNearlyAsWellAsCanBe) {
  std::mt19937 random(2);
  const auto draw = [&](double least, double most) {
    return std::uniform_real_distribution<>(least, most)(random);
  };
  double worst = 1, sum = 0;  // of the bottleneck to the smallest of all splits
  int count = 0;
  for (const Placement& placement : placements())
    for (int round = 0; round < 40; ++round) {
      const int layers = placement.stages() > 5 ? 10 : 18;
      SplitCosts costs{1, std::vector<double>(placement.stages(), 0)};
      costs.stage.front() = draw(0, 4);
      costs.stage.back() += draw(0, 2);
      for (int layer = 0; layer < layers; ++layer) costs.layer_factors.push_back(draw(0.5, 2));
      const auto split = balanced_partition(layers, costs, placement, 0, all_fit);
      EXPECT_EQ(std::accumulate(split->begin(), split->end(), 0), layers);
      const double ratio = bottleneck_seconds(costs, *split, placement) /
                           by_brute_force(layers, costs, placement, 0, all_fit).bottleneck;
      worst = std::max(worst, ratio);
      sum += ratio;
      ++count;
    }
  EXPECT_LT(sum / count, 1.01);
  EXPECT_LT(worst, 1.15);
}

TEST(Balance, EqualFactorsChangeNothing) {
  SplitCosts costs{1, {4, 0, 0, 1}};
  const auto alike = balanced_partition(33, costs, Placement::v(2), 1, all_fit);
  costs.layer_factors.assign(33, 2.0);
  costs.layer = 0.5;
  EXPECT_EQ(balanced_partition(33, costs, Placement::v(2), 1, all_fit), alike);
}

TEST(Balance, AVisionEncoderShiftsLayersByPlacement) {
  // As much as four layers; the first rank also has the last stage in V placement, the third one in a loop.
  const SplitCosts costs{1, {4, 0, 0, 1}};
  const auto v = balanced_partition(33, costs, Placement::v(2), 1, all_fit);
  EXPECT_THAT(*v, ElementsAre(0, 15, 4, 14));
  EXPECT_EQ(bottleneck_seconds(costs, *v, Placement::v(2)), 19);
  // Of the same load on both ranks, but the third and fourth stage together are the bottleneck.
  EXPECT_EQ(bottleneck_seconds(costs, {0, 10, 9, 14}, Placement::v(2)), 24);
  EXPECT_EQ(bottleneck_seconds(costs, {0, 10, 9, 14}, Placement::loop(2, 2)), 25);
}

TEST(Balance, NearbySplitsAreTriedByTheirSteps) {
  const SplitCosts costs{1, {0, 0, 0, 0}};
  const Placement placement = Placement::v(2);
  const std::vector<int> target{2, 2, 3, 3};
  int asked = 0;
  bool twice = false;
  const auto from = [&](const std::vector<int>& split, const Fits& fits, double microbatches, int most,
                        int first = 0, const std::vector<int>& other = {}) {
    asked = 0;
    std::set<std::vector<int>> seen;
    const auto step_seconds = [&](const std::vector<int>& layers) {
      ++asked;
      twice |= !seen.insert(layers).second;
      double seconds = 10;
      for (size_t stage = 0; stage < layers.size(); ++stage)
        seconds += std::abs(layers[stage] - target[stage]);
      return seconds;
    };
    return fastest_nearby(split, other.empty() ? split : other, costs, placement, first, fits, microbatches,
                          step_seconds, most);
  };
  EXPECT_EQ(from({3, 3, 2, 2}, all_fit, 1, 1000), target);
  const int without_bound = asked;
  // A rank with six layers works 14.1 seconds, longer than the first step: layers change their chunks only.
  EXPECT_EQ(from({3, 3, 2, 2}, all_fit, 2.35, 1000), target);
  EXPECT_LT(asked, without_bound);
  const Fits two_behind = [](int rank, const std::vector<int>& layers) { return rank == 0 || layers[1] < 3; };
  EXPECT_THAT(from({3, 3, 2, 2}, two_behind, 2.35, 1000), ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(from({0, 5, 2, 3}, all_fit, 1, 1000, 1), ElementsAre(0, 4, 3, 3));
  from({3, 3, 2, 2}, all_fit, 1, 3);
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(from({3, 3, 2, 2}, all_fit, 1, 0), ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(asked, 0);
  // Another split that is faster than what comes out, and fits, takes its place.
  EXPECT_THAT(from({5, 0, 0, 5}, all_fit, 1, 1, 0, {3, 2, 3, 2}), ElementsAre(3, 2, 3, 2));
  EXPECT_EQ(from({5, 0, 0, 5}, all_fit, 1, 1000, 0, target), target);
  EXPECT_THAT(from({5, 0, 0, 5}, two_behind, 1, 2, 0, target), ElementsAre(4, 1, 0, 5));
  EXPECT_FALSE(twice);
}

TEST(Balance, LayersWithoutTimeAreDivided) {
  const SplitCosts costs{0, {0, 0, 0}};
  const auto split = balanced_partition(7, costs, Placement::loop(3, 1), 0, all_fit);
  EXPECT_EQ(std::accumulate(split->begin(), split->end(), 0), 7);
}

TEST(Balance, CostsAreTheComputeOfEachStage) {
  CostTable table;
  table.at(Unit::attn, UnitPass::F) = 1;
  table.at(Unit::attn, UnitPass::I) = 2;
  table.at(Unit::attn, UnitPass::W_late) = 4;
  table.at(Unit::mlp, UnitPass::F) = 8;
  table.at(Unit::mlp, UnitPass::W_early) = 16;
  table.at(Unit::head, UnitPass::F) = 32;
  table.at(Unit::head, UnitPass::W_late) = 64;
  table.at(Unit::embedding, UnitPass::F) = 128;
  table.all_reduce = 1000;
  const SplitCosts costs = split_costs(table, {.embedding = true}, 4);
  EXPECT_EQ(costs.layer, 31);
  EXPECT_THAT(costs.stage, ElementsAre(128, 0, 0, 96));
  EXPECT_EQ(split_costs(table, {}, 1).stage, std::vector<double>{96});
  table.at(Unit::vision_mlp, UnitPass::F) = 1000;
  table.at(Unit::merger, UnitPass::I) = 10;
  EXPECT_THAT(split_costs(table, {.embedding = true, .vision_layers = 3}, 2).stage, ElementsAre(3138, 96));
  // A recomputed layer runs its forward again.
  EXPECT_EQ(split_costs(table, {.strategy = {.recompute = {.layer = true}}}, 2).layer, 40);
  const SplitCosts two = split_costs(table, {.strategy = {.recompute = {.layer = true, .first = 2}}}, 2);
  EXPECT_EQ(two.layer, 31);
  EXPECT_THAT(two.of_stages({1, 3}), ElementsAre(31 + 9, 3 * 31 + 2 * 9 + 96));
  table.layer_factors = {2, 3, 4, 5};  // of the model's layers and the step's microbatches
  table.microbatch_factors = {6, 7};
  EXPECT_EQ(split_costs(table, {.embedding = true}, 4).layer, 31);
}

}  // namespace
}  // namespace stp
