#include "stp/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "stp/base/error.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"

namespace stp {

extern const Generator schedule_stp;

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The message of the InputError that `call` throws, "" if it throws none.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Schedule stp_schedule(int pp, int microbatches) {
  GeneratorRequest request;
  request.pp = pp;
  request.microbatches = microbatches;
  return make_schedule(schedule_stp, request);
}

Schedule from_text(const Placement& placement, int microbatches,
                   const std::vector<std::vector<std::string>>& ranks) {
  Schedule schedule{"by hand", placement, microbatches, {}};
  for (const auto& row : ranks) {
    auto& blocks = schedule.ranks.emplace_back();
    for (const std::string& block : row) blocks.push_back(parse_block(block));
  }
  return schedule;
}

// ---- text forms ----

TEST(BlockText, RoundTrips) {
  for (const std::string text :
       {"F0.0", "I1.10", "W63.999", "B0.2147483647", "F32767.5", "F0.3&B0.1", "F0.5&W1.2", "F0.6&F0.7"})
    EXPECT_EQ(to_string(parse_block(text)), text);
}

TEST(BlockText, IsReadAsWritten) {
  const Block block = parse_block("F0.5&W1.2");
  ASSERT_TRUE(block.braided());
  EXPECT_EQ(block.actions()[0], (Action{Pass::F, 0, 5}));
  EXPECT_EQ(block.actions()[1], (Action{Pass::W, 1, 2}));
  EXPECT_FALSE(parse_block("F0.5").braided());
}

TEST(BlockText, RefusesEverythingElse) {
  for (const std::string text : {"",
                                 "F",
                                 "F0",
                                 "F0.",
                                 "F.1",
                                 "0.1",
                                 "X0.1",
                                 "f0.1",
                                 "F0.3 ",
                                 " F0.3",
                                 "F0 .3",
                                 "F00.3",
                                 "F0.03",
                                 "F0.-1",
                                 "F-1.0",
                                 "F+0.1",
                                 "F0,1",
                                 "F0.3.1",
                                 "F0.1e2",
                                 "F0.1\n",
                                 "F0.1&",
                                 "&F0.1",
                                 "F0.1&&B0.0",
                                 "F0.1 & B0.0",
                                 "F0.1&B0",
                                 "F0.1&X0.0",
                                 "F0.1B0.0",
                                 "F0.1&B0.0&W0.0",
                                 "F0.1&B0.0 ",
                                 "F32768.0",
                                 "F0.2147483648",
                                 "F0.99999999999999999999"})
    EXPECT_THAT(refusal([&] { parse_block(text); }), HasSubstr("\"" + text + "\" is not a block"));
  EXPECT_NE(refusal([] { parse_block(std::string_view("F0.1\0", 5)); }), "");
}

// ---- placement ----

void expect_bijective(const Placement& placement) {
  std::vector<bool> seen(placement.stages());
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
      const int stage = placement.stage(rank, chunk);
      ASSERT_TRUE(stage >= 0 && stage < placement.stages());
      EXPECT_FALSE(seen[stage]) << "virtual stage " << stage << " twice";
      seen[stage] = true;
      EXPECT_EQ(placement.rank_of(stage), rank);
      EXPECT_EQ(placement.chunk_of(stage), chunk);
    }
  }
}

TEST(Placement, LoopAndVAreBijective) {
  for (int p = 1; p <= 9; ++p) {
    for (int v = 1; v <= 4; ++v) expect_bijective(Placement::loop(p, v));
    expect_bijective(Placement::v(p));
  }
}

TEST(Placement, LoopAndVHaveTheTablesOfTheLiterature) {
  const Placement loop = Placement::loop(4, 3), v = Placement::v(4);
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 3; ++c) EXPECT_EQ(loop.stage(r, c), c * 4 + r);
    EXPECT_EQ(v.stage(r, 0), r);
    EXPECT_EQ(v.stage(r, 1), 7 - r);
  }
}

TEST(Placement, IsFoundByNameOrRefused) {
  EXPECT_EQ(Placement::named("loop", 4, 3).stage(1, 2), 9);
  EXPECT_EQ(Placement::named("v", 4, 2).stage(1, 1), 6);
  EXPECT_THAT(refusal([] { Placement::named("v", 4, 3); }), HasSubstr("chunks"));
  EXPECT_THAT(refusal([] { Placement::named("w", 4, 2); }), HasSubstr("\"w\" is not a placement"));
}

// ---- sizes and JSON ----

TEST(Size, IsRefusedOutsideItsLimits) {
  EXPECT_EQ(refusal([] { check_size(1, 1, 1); }), "");
  EXPECT_EQ(refusal([] { check_size(kMaxRanks, 2, kMaxChunkPasses / kMaxRanks / 2); }), "");
  EXPECT_THAT(refusal([] { check_size(0, 1, 1); }), HasSubstr("pp"));
  EXPECT_THAT(refusal([] { check_size(kMaxRanks + 1, 1, 1); }), HasSubstr("pp"));
  EXPECT_THAT(refusal([] { check_size(1, kMaxChunks + 1, 1); }), HasSubstr("chunks"));
  EXPECT_THAT(refusal([] { check_size(1, 1, 0); }), HasSubstr("microbatches"));
  EXPECT_THAT(refusal([] { check_size(1, 1, kMaxMicrobatches + 1); }), HasSubstr("microbatches"));
  EXPECT_THAT(refusal([] { check_size(kMaxRanks, kMaxChunks, kMaxMicrobatches); }), HasSubstr("more than"));
}

TEST(Size, OfChunksIsTheGenerators) {
  GeneratorRequest request;
  request.microbatches = 2;
  request.chunks = 3;
  EXPECT_THAT(refusal([&] { make_schedule(schedule_stp, request); }), HasSubstr("chunks"));
}

TEST(ScheduleText, IsALinePerRank) {
  const Schedule schedule = from_text(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}});
  EXPECT_EQ(to_text(schedule), "F0.0 B0.0\nF0.0 I0.0 W0.0\n");
}

TEST(ScheduleJson, RoundTrips) {
  for (const auto& [p, m] : {std::pair{1, 2}, {2, 5}, {4, 16}}) {
    const Schedule schedule = stp_schedule(p, m);
    const Schedule read = schedule_from_json(json::parse(to_json(schedule).dump()), "s.json");
    EXPECT_EQ(read.name, schedule.name);
    EXPECT_EQ(read.placement.name(), "v");
    EXPECT_EQ(read.pp(), p);
    EXPECT_EQ(read.chunks(), 2);
    EXPECT_EQ(read.microbatches, m);
    EXPECT_EQ(read.ranks, schedule.ranks);
  }
}

TEST(ScheduleJson, RefusesWhatIsNotExactlyAScheduleAndNamesThePlace) {
  const json good = to_json(from_text(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}}));
  const auto refuses = [&](const std::string& pointer, const json& value, const std::string& field) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    EXPECT_THAT(refusal([&] { schedule_from_json(bad, "s.json"); }),
                AllOf(HasSubstr("s.json: "), HasSubstr(field)))
        << pointer << " = " << value;
  };
  ASSERT_EQ(refusal([&] { schedule_from_json(good, "s.json"); }), "");
  for (const auto& item : good.items()) {
    json bad = good;
    bad.erase(item.key());
    EXPECT_THAT(refusal([&] { schedule_from_json(bad, "s.json"); }),
                AllOf(HasSubstr("s.json: " + item.key()), HasSubstr("missing")));
  }
  refuses("/schedule", 5, "schedule");
  refuses("/placement", "ring", "placement");
  refuses("/placement", "v", "chunks");
  refuses("/pp", 0, "pp");
  refuses("/pp", 2.5, "pp");
  refuses("/pp", "2", "pp");
  refuses("/pp", 3, "ranks");
  refuses("/chunks", 65, "chunks");
  refuses("/microbatches", 0, "microbatches");
  refuses("/microbatches", true, "microbatches");
  refuses("/ranks", "F0.0", "ranks");
  refuses("/ranks/1", "F0.0", "ranks[1]");
  refuses("/ranks/2", json::array({"F0.0"}), "ranks");
  refuses("/ranks/1/0", 7, "ranks[1][0]");
  refuses("/ranks/0/1", "B0.0 ", "ranks[0][1]");
  refuses("/microbatch", 1, "microbatch");
  EXPECT_NE(refusal([] { schedule_from_json(json::array(), "s.json"); }), "");
}

// ---- validation ----

TEST(Validate, AcceptsGoodSchedules) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 3 * p - 1; m <= 3 * p + 6; ++m)
      EXPECT_NO_THROW(validate(stp_schedule(p, m))) << p << " " << m;
  EXPECT_NO_THROW(
      validate(from_text(Placement::loop(2, 1), 2,
                         {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "I0.0", "F0.1&W0.0", "B0.1"}})));
}

TEST(Validate, RefusesDeadlockBetweenRanksAndSaysWhoWaits) {
  const Schedule schedule = from_text(Placement::loop(2, 1), 2,
                                      {{"F0.0", "B0.0", "F0.1", "B0.1"}, {"F0.1", "F0.0", "B0.0", "B0.1"}});
  EXPECT_THAT(refusal([&] { validate(schedule); }),
              AllOf(HasSubstr("rank 0, block 1, B0.0"), HasSubstr("deadlock"), HasSubstr("rank 1")));
}

TEST(Validate, RefusesABraidWhoseActionsWaitForEachOther) {
  const Schedule same = from_text(Placement::loop(1, 1), 1, {{"F0.0&B0.0"}});
  EXPECT_THAT(refusal([&] { validate(same); }), AllOf(HasSubstr("rank 0"), HasSubstr("B0.0")));
  // By way of other chunks: F1 waits for F0 at the turn of the V, I0 for I1.
  const Schedule turn = from_text(Placement::v(1), 1, {{"F0.0&F1.0", "B1.0", "B0.0"}});
  EXPECT_THAT(refusal([&] { validate(turn); }),
              AllOf(HasSubstr("rank 0, block 0, F1.0"), HasSubstr("deadlock")));
}

TEST(Validate, RefusesAFullBackwardBesideASplitOne) {
  for (const auto& row : std::vector<std::vector<std::string>>{{"F0.0", "B0.0", "W0.0"},
                                                               {"F0.0", "B0.0", "I0.0"},
                                                               {"F0.0", "I0.0", "B0.0"},
                                                               {"F0.0", "I0.0", "W0.0", "B0.0"}})
    EXPECT_THAT(refusal([&] { validate(from_text(Placement::loop(1, 1), 1, {row})); }),
                HasSubstr("rank 0, block " + std::to_string(row.size() - 1) + ", " + row.back()));
}

TEST(Validate, RefusesMissingRanksAndEmptyBlocks) {
  Schedule schedule = stp_schedule(2, 5);
  schedule.ranks.pop_back();
  EXPECT_THAT(refusal([&] { validate(schedule); }), HasSubstr("1 lists for 2 ranks"));
  schedule = stp_schedule(2, 5);
  schedule.ranks[1].emplace_back();
  EXPECT_THAT(refusal([&] { validate(schedule); }), AllOf(HasSubstr("rank 1"), HasSubstr("empty block")));
}

// A valid schedule and one of its actions, drawn at random, to be spoilt. Its STP orders hold every pass,
// alone and in braids.
class Mutation : public testing::Test {
 protected:
  struct Spot {
    int rank;
    size_t position, part;
  };

  void draw() {
    const int p = 2 + static_cast<int>(random_() % 3);
    schedule_ = stp_schedule(p, 3 * p - 1 + static_cast<int>(random_() % 5));
    spot_.rank = static_cast<int>(random_() % p);
    spot_.position = random_() % row().size();
    spot_.part = random_() % row()[spot_.position].actions().size();
    action_ = row()[spot_.position].actions()[spot_.part];
  }

  std::vector<Block>& row() { return schedule_.ranks[spot_.rank]; }
  // Puts `actions` in place of the chosen action; its braid, if any, keeps the other one.
  void replace(const std::vector<Action>& actions) {
    std::vector<Block> blocks;
    const Block block = row()[spot_.position];
    if (block.braided()) blocks.emplace_back(block.actions()[1 - spot_.part]);
    for (const Action& action : actions) blocks.emplace_back(action);
    const auto at = row().erase(row().begin() + static_cast<ptrdiff_t>(spot_.position));
    row().insert(at, blocks.begin(), blocks.end());
  }
  void expect_refused(const std::vector<std::string>& named) {
    const std::string message = refusal([&] { validate(schedule_); });
    ASSERT_NE(message, "") << "spoilt at " << to_string(action_) << " of rank " << spot_.rank;
    for (const std::string& part : named) EXPECT_THAT(message, HasSubstr(part));
  }
  [[nodiscard]] std::string rank_name() const { return "rank " + std::to_string(spot_.rank); }
  // "0.3" of F0.3: whose pass the message may choose among those that no longer fit together.
  [[nodiscard]] std::string chunk_and_microbatch() const { return to_string(action_).substr(1); }

  static constexpr int kDraws = 300;
  std::mt19937 random_{20251027};
  Schedule schedule_ = stp_schedule(1, 2);
  Spot spot_{};
  Action action_;
};

TEST_F(Mutation, DroppedActionIsRefused) {
  for (int i = 0; i < kDraws; ++i) {
    draw();
    replace({});
    expect_refused({rank_name(), chunk_and_microbatch()});
  }
}

TEST_F(Mutation, DoubledActionIsRefused) {
  for (int i = 0; i < kDraws; ++i) {
    draw();
    replace({action_, action_});
    expect_refused({rank_name(), to_string(action_), "second time"});
  }
}

TEST_F(Mutation, ActionBeforeWhatItDependsOnIsRefused) {
  for (int i = 0; i < kDraws; ++i) {
    do draw();
    while (action_.pass == Pass::F);
    const Pass needed = action_.pass == Pass::W ? Pass::I : Pass::F;
    const auto before = std::find_if(row().begin(), row().end(), [&](const Block& block) {
      return std::ranges::count(block.actions(), Action{needed, action_.chunk, action_.microbatch}) > 0;
    });
    ASSERT_NE(before, row().end());
    std::swap(*before, row()[spot_.position]);
    expect_refused({rank_name(), "stands before its "});
  }
}

TEST_F(Mutation, ActionOnAnotherRankIsRefused) {
  for (int i = 0; i < kDraws; ++i) {
    draw();
    replace({});
    const int from = spot_.rank;
    const int to = (from + 1) % schedule_.pp();
    auto& others = schedule_.ranks[to];
    others.insert(others.begin() + static_cast<ptrdiff_t>(random_() % (others.size() + 1)), Block(action_));
    expect_refused({"rank " + std::to_string(std::min(from, to)), chunk_and_microbatch()});
  }
}

TEST_F(Mutation, MicrobatchOrChunkThatDoesNotExistIsRefused) {
  for (int i = 0; i < kDraws; ++i) {
    draw();
    action_.microbatch = random_() % 2 == 0 ? -1 : schedule_.microbatches;
    replace({action_});
    expect_refused({rank_name(), to_string(action_), "there is no microbatch"});
    draw();
    action_.chunk = static_cast<int16_t>(random_() % 2 == 0 ? -1 : 2);
    replace({action_});
    expect_refused({rank_name(), to_string(action_), "there is no chunk"});
  }
}

// ---- activations ----

TEST(PeakActivations, CountsABraidsActionsTogetherAndFreesAtWOrI) {
  const Schedule schedule =
      from_text(Placement::loop(1, 1), 2, {{"F0.0", "F0.1&I0.0", "I0.1", "W0.0", "W0.1"}});
  EXPECT_THAT(peak_activations(schedule), ElementsAre(2));
  EXPECT_THAT(peak_activations(schedule, true), ElementsAre(2));
  const Schedule apart =
      from_text(Placement::loop(1, 1), 2, {{"F0.0", "I0.0", "F0.1", "I0.1", "W0.0", "W0.1"}});
  EXPECT_THAT(peak_activations(apart), ElementsAre(2));
  EXPECT_THAT(peak_activations(apart, true), ElementsAre(1));
  const Schedule full = from_text(Placement::loop(1, 1), 2, {{"F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_THAT(peak_activations(full), ElementsAre(1));
}

}  // namespace
}  // namespace stp
