// The quality of plans and orders on the simulator. First PipeOffload's copies, planned over orders of any
// schedule: against its authors' plans, and against what a shared link and a rank's memory allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "baselines/registry.h"
#include "stp/base/json_input.h"
#include "stp/cost/memory.h"
#include "stp/program/issue_order.h"
#include "stp/schedule/share_vocabulary.h"
#include "stp/schedule/validate.h"
#include "support/effort.h"
#include "support/order_times.h"
#include "support/refusal.h"
#include "support/unit_costs.h"

namespace stp {
namespace {

using testing::Each;

using nlohmann::json;

// One layer a chunk, whose copies take `seconds` where a pass takes 1.
Program program_of(const Schedule& schedule, int chunks, double seconds, PassCosts costs = {}) {
  const std::vector<int> layers(schedule.placement.stages(), 1);
  return lower(schedule, layers,
               {.copies = {.costs = costs, .seconds = seconds},
                .strategy = {.offload = chunks > 0 ? 1.0 : 0.0, .offload_chunks = chunks}});
}

// In activations of a chunk, where all of it leaves.
std::vector<double> peaks(const Program& program) {
  const std::vector<ActivationBytes> bytes(program.layers_per_stage.size(),
                                           {.until_I = 1, .until_W = 1, .offloaded = 1});
  return peak_activation_bytes(program, bytes);
}

Timeline step_of(const Program& program, double copy) {
  CostTable table = unit_costs(0);
  table.offload_per_layer = table.reload_per_layer = copy;
  return simulate(program, op_seconds(program, table));
}

// The order is theirs (baselines/golden_test.cc).
void expect_no_more_than(const json& golden, const std::string& name, int v, const PassCosts& costs) {
  const int p = golden["p"], m = golden["m"];
  const Schedule schedule = make_schedule(find_generator(name), {p, m, v, costs});
  const double copy = golden["k"].get<double>() / 2 * (costs.F + costs.I + costs.W);
  const std::vector<double> found = peaks(program_of(schedule, golden["chunks"], copy, costs));
  for (int rank = 0; rank < p; ++rank) EXPECT_LE(found[rank], golden["peak_with"][rank]) << rank;
}

TEST(PipeOffload, HoldsNoMoreThanItsAuthorsPlans) {
  int orders = 0;
  for (const std::string name : {"gis", "uniform"}) {
    const json file = read_json_file(STP_SOURCE_DIR "/tests/golden/offload/" + name + ".json");
    const json& made_for = file["generated_for"];
    for (const json& golden : file["orders"]) {
      SCOPED_TRACE(name + " " + std::to_string(++orders));
      expect_no_more_than(golden, name, file["v"],
                          {made_for["F"], made_for["I"], made_for["W"], made_for["p2p"]});
    }
  }
  EXPECT_EQ(orders, 12);
}

// With all chunks, memory does not grow with the ranks. With half of them, it halves at no cost. Copies of
// all delay the first backwards by a pass a chunk at most: the plan takes those of the warm-up to be faster.
TEST(PipeOffload, OfUniformOrdersHoldsAsMuchOnAnyNumberOfRanks) {
  for (const int p : {4, 6, 8, 12, 16})
    for (const int v : {2, 4}) {
      const Schedule schedule = make_schedule(find_generator("uniform"), {p, 3 * p, v});
      SCOPED_TRACE(std::to_string(p) + " " + std::to_string(v));
      const double copy = 0.25 * 3, without = step_of(program_of(schedule, 0, 0), 0).step_s;
      const Program all = program_of(schedule, v, copy), half = program_of(schedule, v / 2, copy);
      EXPECT_THAT(peaks(all), Each(testing::Le(v == 2 ? 3 : 4)));
      EXPECT_LE(peaks(half)[0], (peaks(program_of(schedule, 0, 0))[0] + 1) / 2);
      EXPECT_LE(step_of(all, copy).step_s, without + v);
      EXPECT_DOUBLE_EQ(step_of(half, copy).step_s, without);
    }
}

// Of any order: nothing deadlocks, each copy out has its copy back, one copy of a rank and one of a direction
// of a pair's link runs at a time.
TEST(PipeOffload, PlansOfEverySchedule) {
  for (const Generator* generator : generators())
    for (const auto& [p, m] : {std::pair{1, 4}, {2, 8}, {3, 9}, {4, 16}, {6, 24}})
      for (const double copy : {0.1, 0.7, 1.5, 3.0})
        for (const PassCosts& costs : {PassCosts{}, PassCosts{1, 1.3, 0.6, 0.1}}) {
          if (generator->name == std::string("dualpipe") && p % 2 != 0) continue;
          const Schedule schedule = make_schedule(*generator, {p, m, 0, costs});
          SCOPED_TRACE(std::string(generator->name) + " p=" + std::to_string(p) + " " + std::to_string(copy));
          const auto planned = [&] { return program_of(schedule, schedule.chunks(), copy, costs); };
          if (vocabulary_of(schedule) != Vocabulary::whole) {
            EXPECT_THAT(refusal(planned), testing::HasSubstr("offload.chunks"));
            continue;
          }
          const Program program = planned();
          EXPECT_NO_THROW(issue_order(program));
          const std::vector<double> with = peaks(program), without = peaks(program_of(schedule, 0, 0));
          for (int rank = 0; rank < p; ++rank) EXPECT_LE(with[rank], without[rank]);
          const Timeline times = step_of(program, copy);
          std::map<std::pair<int, int>, double> ends;  // by rank, and by direction and link
          std::vector<int> balance(p);                 // copies out less copies back, by rank
          std::vector<OpId> copies;
          for (OpId id = 0; id < program.ops.size(); ++id)
            if (is_host_copy(program.ops[id].kind)) copies.push_back(id);
          std::ranges::stable_sort(copies, {}, [&](OpId id) { return times.start[id]; });
          for (const OpId id : copies) {
            const int rank = program.stream_of(id).rank;
            balance[rank] += program.ops[id].kind == OpKind::offload ? 1 : -1;
            for (const auto& line :
                 {std::pair{0, rank}, {1 + static_cast<int>(program.ops[id].kind), rank / 2}}) {
              EXPECT_GE(times.start[id], ends[line] - 1e-9);
              ends[line] = times.end[id];
            }
          }
          EXPECT_THAT(balance, Each(0));
        }
}

// Orders that are made to share the vocabulary: what it gains, and what it costs beside the passes
// themselves. F = I = W = 1 a layer, 2p layers, the head worth two of them, and collectives and transfers of
// 0.1 and 0.02.

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

// STP against the schedules that it is compared with, where it has few microbatches: p ≤ m < 3p − 1, unit
// costs. One layer a virtual stage, F = I = W = 1 a chunk, and all-reduces of 0.25 a chunk and direction, or
// of 0.25 each.

constexpr double kEpsilon = 1e-9;
constexpr double kAllReduces[] = {0.125, 0.25};  // two per chunk and direction

Schedule make(const char* name, int p, int m, const PassCosts& costs = {}) {
  return make_schedule(find_generator(name), {.pp = p, .microbatches = m, .costs = costs});
}

// ZB-V with default costs or with the passes' costs, whichever is faster.
double zb_v_time(int p, int m, double all_reduce) {
  const PassCosts costs = pass_costs(unit_costs(all_reduce), 1);
  return std::min(step_time(make("zb-v", p, m), all_reduce),
                  step_time(make("zb-v", p, m, costs), all_reduce));
}

class StpQuality : public testing::TestWithParam<int> {
 protected:
  const int p = GetParam();
};

TEST_P(StpQuality, IsNoSlowerThanZbVFromAFewMoreMicrobatchesThanRanks) {
  // Nearer to p the first backwards begin after all forwards, and braids cost time.
  for (const int m : sample_of(p + 1 + p / 8, 3 * p - 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce), zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, IsNearZbVWithFewerMicrobatches) {
  for (const int m : sample_of(1, p + 1 + p / 8))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce), 1.12 * zb_v_time(p, m, all_reduce)) << "m=" << m;
}

TEST_P(StpQuality, IsNoSlowerThan1f1bI) {
  for (int m = p; m < 3 * p - 1; m += p)
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce),
                step_time(make("1f1b-i", p, m), all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, IsNoSlowerThanZbVWithAtomicBlocksFromTwiceAsManyMicrobatches) {
  for (const int m : sample_of(2 * p, 3 * p - 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp", p, m), all_reduce, Release::block),
                zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

TEST_P(StpQuality, WithLittleMemoryIsNoSlowerThanZbVFromTwiceAsManyMicrobatches) {
  for (const int m : sample_of(2 * p, 5 * p + 1))
    for (const double all_reduce : kAllReduces)
      EXPECT_LE(step_time(make("stp-memory", p, m), all_reduce), zb_v_time(p, m, all_reduce) + kEpsilon)
          << "m=" << m;
}

INSTANTIATE_TEST_SUITE_P(Ranks, StpQuality, testing::Range(2, 13), testing::PrintToStringParamName());

}  // namespace
}  // namespace stp
