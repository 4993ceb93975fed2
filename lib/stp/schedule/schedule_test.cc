#include "stp/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stp/base/error.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

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
  const json texts = json::parse(
      R"(["", "F", "F0", "F0.", "F.1", "0.1", "X0.1", "f0.1", "F0.3 ", " F0.3", "F0 .3", "F00.3", "F0.03", "F0.-1",
          "F-1.0", "F+0.1", "F0,1", "F0.3.1", "F0.1e2", "F0.1\n", "F0.1&", "&F0.1", "F0.1&&B0.0", "F0.1 & B0.0",
          "F0.1&B0", "F0.1&X0.0", "F0.1B0.0", "F0.1&B0.0&W0.0", "F0.1&B0.0 ", "F32768.0", "F0.2147483648",
          "F0.99999999999999999999"])");
  for (const std::string text : texts)
    EXPECT_THAT(refusal([&] { parse_block(text); }), HasSubstr("\"" + printable(text) + "\" is not a block"));
  EXPECT_NE(refusal([] { parse_block(std::string_view("F0.1\0", 5)); }), "");
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

TEST(ScheduleText, IsAHeadingAndALinePerRank) {
  const Schedule loop = schedule_of(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}});
  EXPECT_EQ(to_text(loop), "# schedule by hand, placement loop\nF0.0 B0.0\nF0.0 I0.0 W0.0\n");
  const Schedule table = schedule_of(Placement::table({{1, 0}}), 1, {{"F1.0", "F0.0", "B0.0", "B1.0"}});
  EXPECT_EQ(to_text(table), "# schedule by hand, placement [[1,0]]\nF1.0 F0.0 B0.0 B1.0\n");
}

void expect_same(const Schedule& read, const Schedule& schedule) {
  EXPECT_EQ(read.name, schedule.name);
  EXPECT_EQ(read.placement, schedule.placement);
  EXPECT_EQ(read.placement.name(), schedule.placement.name());
  EXPECT_EQ(read.microbatches, schedule.microbatches);
  EXPECT_EQ(read.ranks, schedule.ranks);
}

// One schedule per placement; the last has a name that looks like a heading.
std::vector<Schedule> some_schedules() {
  std::vector<Schedule> schedules = {stp_schedule(1, 2), stp_schedule(2, 5), stp_schedule(4, 16)};
  schedules.push_back(schedule_of(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}}));
  schedules.push_back(schedule_of(
      Placement::wave(2, 3), 1,
      {{"F0.0", "F1.0", "F2.0", "B2.0", "B1.0", "B0.0"}, {"F0.0", "F1.0", "F2.0", "B2.0", "B1.0", "B0.0"}}));
  schedules.push_back(
      schedule_of(Placement::table({{0, 1}, {3, 2}}), 1,
                  {{"F0.0", "F1.0", "B1.0", "B0.0"}, {"F1.0", "F0.0", "I0.0", "W0.0", "B1.0"}}));
  schedules.back().name = "a, placement loop, placement \u00fc";
  for (const Schedule& schedule : schedules) EXPECT_EQ(refusal([&] { validate(schedule); }), "");
  return schedules;
}

TEST(ScheduleText, RoundTrips) {
  for (const Schedule& schedule : some_schedules())
    expect_same(schedule_from_text(to_text(schedule), "s.txt"), schedule);
}

TEST(ScheduleText, DoesWithoutAHeadingWhereThePlacementIsPlain) {
  const auto read = [](const std::string& text) { return schedule_from_text(text, "a/mine.txt"); };
  EXPECT_EQ(read("F0.0 B0.0\nF0.0 B0.0\n").placement, Placement::loop(2, 1));
  EXPECT_EQ(read("F0.0 B0.0\nF0.0 B0.0").name, "mine");
  EXPECT_EQ(read("F0.0 F1.0 B1.0 B0.0\r\n").placement, Placement::loop(1, 2));
  EXPECT_EQ(read(" F0.0\t F0.1 \n").microbatches, 2);
  const std::string two = "F0.0 F1.0 B1.0 B0.0\nF0.0 F1.0 B1.0 B0.0\n";
  EXPECT_EQ(read("# placement v\n" + two).placement, Placement::v(2));
  EXPECT_EQ(read("# placement loop\n" + two).placement, Placement::loop(2, 2));
  EXPECT_EQ(read("# placement [[0,2],[3,1]]\n" + two).placement, Placement::table({{0, 2}, {3, 1}}));
  EXPECT_THAT(
      refusal([&] { read(two); }),
      AllOf(HasSubstr("mine.txt: line 1: no placement is given, and 2 ranks of 2 chunks have more than one"),
            HasSubstr("# placement v")));
}

TEST(ScheduleText, RefusesEverythingElse) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    EXPECT_THAT(refusal([&] { schedule_from_text(text, "s.txt"); }),
                AllOf(HasSubstr("s.txt:"), HasSubstr(what), HasSubstr("; ")))
        << text;
  };
  refuses("", "has no ranks");
  refuses("# placement v\n", "has no ranks");
  refuses("#\nF0.0\n", "line 1: is not a heading");
  refuses("# placement\nF0.0\n", "line 1: is not a heading");
  refuses("# placement \nF0.0\n", "placement: \"\" is not a placement");
  refuses("# placement ring\nF0.0\n", "placement: \"ring\" is not a placement");
  refuses("# placement v \nF0.0\n", "placement: \"v \" is not a placement");
  refuses("# placement v\nF0.0\n", "chunks: placement v has two chunks");
  refuses("# placement bidirectional\nF0.0 F1.0\n", "pp: placement bidirectional mirrors an even number");
  refuses("# placement [[0]\nF0.0\n", "is not valid JSON");
  refuses("# placement [[0],[1]]\nF0.0\n", "placement: has 2 rows for 1 ranks");
  refuses("# schedule x\nF0.0\n", "line 1: is not a heading");
  refuses("# schedule , placement loop\nF0.0\n", "schedule: is not a name");
  refuses("# schedule \x01, placement loop\nF0.0\n", "schedule: is not a name");
  refuses("# schedule \xff, placement loop\nF0.0\n", "schedule: is not a name");
  refuses("F0.0\n# placement loop\n", "line 2 (rank 1), block 0: \"#\" is not a block");
  refuses("F0.0 B0.0\n\nF0.0 B0.0\n", "line 2 (rank 1): has no blocks");
  refuses("F0.0 B0.0\nF0.0 X0.0\n", "line 2 (rank 1), block 1: \"X0.0\" is not a block");
  refuses("F64.0\n", "chunks: 65 is out of range");
  refuses("F0.2147483647\n", "microbatches: ");
}

TEST(ScheduleJson, RoundTrips) {
  for (const Schedule& schedule : some_schedules())
    expect_same(schedule_from_json(json::parse(to_json(schedule).dump()), "s.json"), schedule);
}

TEST(ScheduleJson, NamesThePlacementOrTabulatesIt) {
  EXPECT_EQ(to_json(stp_schedule(2, 5))["placement"], "v");
  json order = to_json(schedule_of(Placement::table({{0, 1}, {3, 2}}), 1, {{}, {}}));
  EXPECT_EQ(order["placement"], json::parse("[[0,1],[3,2]]"));
  order["placement"] = json::parse("[[0,3],[1,2]]");
  EXPECT_EQ(schedule_from_json(order, "s.json").placement.name(), "v");
  for (const auto& [table, what] : std::vector<std::pair<std::string, std::string>>{
           {"5", "placement: is neither a name nor a table"},
           {"{}", "placement: is neither a name nor a table"},
           {"[]", "placement: has 0 rows for 2 ranks"},
           {"[[0,1]]", "placement: has 1 rows for 2 ranks"},
           {"[[0,1],2]", "placement[1]: is not an array"},
           {"[[0,1],[2]]", "placement[1]: has 1 entries for 2 chunks"},
           {"[[0,1,2],[3]]", "placement[0]: has 3 entries"},
           {"[[0,1],[2,2]]", "placement[1][1]: virtual stage 2 is on rank 1"},
           {"[[0,1],[2,4]]", "placement[1][1]: there is no virtual stage 4"},
           {"[[0,1],[2,-3]]", "placement[1][1]: -3 is not a virtual stage"},
           {"[[0,1],[2,3.0]]", "placement[1][1]: 3.0 is not"},
           {"[[0,1],[2,1e99]]", "placement[1][1]: 1e+99 is not"},
           {"[[0,1],[2,18446744073709551615]]", "placement[1][1]: 1844"},
           {"[[0,1],[2,true]]", "placement[1][1]: true is not"}}) {
    order["placement"] = json::parse(table);
    EXPECT_THAT(refusal([&] { schedule_from_json(order, "s.json"); }), HasSubstr("s.json: " + what)) << table;
  }
}

TEST(ScheduleJson, RefusesWhatIsNotExactlyAScheduleAndNamesThePlace) {
  const json good = to_json(schedule_of(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}}));
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
  refuses("/schedule", "", "schedule: is not a name");
  refuses("/schedule", "a\nb", "schedule: has control characters");
  refuses("/schedule", "a ", "schedule: is not a name");
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

// Rank `last` runs a microbatch first that the rank before it sends second; ranks before wait for the cycle.
TEST(Validate, RefusesDeadlockBetweenRanksAndSaysWhoWaits) {
  for (const int last : {1, 2}) {
    std::vector<std::vector<std::string>> ranks(last, {"F0.0", "B0.0", "F0.1", "B0.1"});
    ranks.push_back({"F0.1", "F0.0", "B0.0", "B0.1"});
    const std::string here = "rank " + std::to_string(last), before = "rank " + std::to_string(last - 1);
    EXPECT_THAT(
        refusal([&] { validate(schedule_of(Placement::loop(last + 1, 1), 2, ranks)); }),
        StartsWith(before + ", block 1, B0.0: deadlock: it waits for " + here +
                   ", block 2, B0.0, which comes after " + here + ", block 0, F0.1, which waits for " +
                   before + ", block 2, F0.1, which comes after " + before +
                   ", block 1, B0.0, which closes the cycle"));
  }
}

Schedule without_the_last_backward(const GeneratorRequest& request) {
  Schedule schedule{"mine", Placement::loop(request.pp, 1), request.microbatches, {}};
  for (int rank = 0; rank < request.pp; ++rank) schedule.ranks.push_back({parse_block("F0.0")});
  return schedule;
}

TEST(Generator, ThatMakesAnInvalidScheduleIsABugWithItsName) {
  const Generator generator{.name = "mine", .summary = "", .chunks = 1, .make = without_the_last_backward};
  EXPECT_THAT(error_of<std::logic_error>([&] { make_schedule(generator, {.pp = 2, .microbatches = 1}); }),
              AllOf(StartsWith("schedule mine, p 2, m 1: "), HasSubstr("rank 0, B0.0: is missing")));
}

TEST(Validate, RefusesIncompleteAndMixedPassesOfTheVocabulary) {
  const std::string good = "E0.0 F0.0 S0.0 U0.0 B0.0 G0.0", last = "E0.0 F0.0 S0.0 B0.0 U0.0 G0.0";
  const auto refused = [&](const std::string& first, const std::string& second) {
    return refusal(
        [&] { validate(schedule_from_text("# placement loop\n" + first + "\n" + second + "\n", "x.txt")); });
  };
  EXPECT_EQ(refused(good, last), "");
  EXPECT_THAT(refused(good, "E0.0 F0.0 S0.0 B0.0 G0.0"), HasSubstr("rank 1, U0.0: is missing"));
  EXPECT_THAT(refused("E0.0 F0.0 S0.0 T0.0 B0.0 G0.0", last), HasSubstr("has T or U throughout"));
  EXPECT_THAT(refused("F0.0 B0.0", last), HasSubstr("rank 0 has no such pass"));
  EXPECT_THAT(refused(good, "E0.0 F0.0 U0.0 S0.0 B0.0 G0.0"), HasSubstr("precedes its S"));
  EXPECT_THAT(refused(good, "E0.0 F0.0&S0.0 B0.0 U0.0 G0.0"), HasSubstr("not braided"));
  EXPECT_THAT(refused(good, "E0.0 F0.0 B0.0 S0.0 U0.0 G0.0"), HasSubstr("deadlock"));
  EXPECT_THAT(refused("F0.0 E0.0 S0.0 U0.0 B0.0 G0.0", last), HasSubstr("deadlock"));
  EXPECT_THAT(refusal([] {
                validate(schedule_from_text("# placement bidirectional\nE0.0 F0.0 F1.0\nF0.0", "x.txt"));
              }),
              HasSubstr("rank 0, block 0, E0.0: is of the vocabulary, which two pipelines"));
  EXPECT_THAT(refused("E0.0 F0.0 S0.0 U0.0 G0.0 B0.0", last), HasSubstr("deadlock"));
}

TEST(Validate, RefusesABraidWhoseActionsWaitForEachOther) {
  const Schedule same = schedule_of(Placement::loop(1, 1), 1, {{"F0.0&B0.0"}});
  EXPECT_THAT(refusal([&] { validate(same); }), AllOf(HasSubstr("rank 0"), HasSubstr("B0.0")));
  // Through other chunks: F1 waits for F0 at the turn of the V, I0 for I1.
  const Schedule turn = schedule_of(Placement::v(1), 1, {{"F0.0&F1.0", "B1.0", "B0.0"}});
  EXPECT_THAT(refusal([&] { validate(turn); }),
              AllOf(HasSubstr("rank 0, block 0, F1.0"), HasSubstr("deadlock")));
}

TEST(Validate, RefusesAFullBackwardBesideASplitOne) {
  for (const auto& row : std::vector<std::vector<std::string>>{{"F0.0", "B0.0", "W0.0"},
                                                               {"F0.0", "B0.0", "I0.0"},
                                                               {"F0.0", "I0.0", "B0.0"},
                                                               {"F0.0", "I0.0", "W0.0", "B0.0"}})
    EXPECT_THAT(refusal([&] { validate(schedule_of(Placement::loop(1, 1), 1, {row})); }),
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

// csv_mutation_test.cc has orders that are spoilt otherwise.
TEST(Validate, RefusesMicrobatchesAndChunksThatDoNotExist) {
  for (const Action& action : {Action{Pass::F, 0, -1}, {Pass::F, 0, 5}, {Pass::F, -1, 0}, {Pass::F, 2, 0}}) {
    Schedule schedule = stp_schedule(2, 5);
    schedule.ranks[1][3] = Block(action);
    EXPECT_THAT(refusal([&] { validate(schedule); }),
                StartsWith("rank 1, block 3, " + to_string(action) + ": there is no " +
                           (action.chunk == 0 ? "microbatch" : "chunk")));
  }
}

// ---- activations ----

TEST(PeakActivations, CountsABraidsActionsTogetherAndFreesAtWOrI) {
  const Schedule schedule =
      schedule_of(Placement::loop(1, 1), 2, {{"F0.0", "F0.1&I0.0", "I0.1", "W0.0", "W0.1"}});
  EXPECT_THAT(peak_activations(schedule), ElementsAre(2));
  EXPECT_THAT(peak_activations(schedule, true), ElementsAre(2));
  const Schedule apart =
      schedule_of(Placement::loop(1, 1), 2, {{"F0.0", "I0.0", "F0.1", "I0.1", "W0.0", "W0.1"}});
  EXPECT_THAT(peak_activations(apart), ElementsAre(2));
  EXPECT_THAT(peak_activations(apart, true), ElementsAre(1));
  const Schedule full = schedule_of(Placement::loop(1, 1), 2, {{"F0.0", "B0.0", "F0.1", "B0.1"}});
  EXPECT_THAT(peak_activations(full), ElementsAre(1));
}

}  // namespace
}  // namespace stp
