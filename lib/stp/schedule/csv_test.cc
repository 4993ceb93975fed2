#include "stp/schedule/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "stp/schedule/read_schedule.h"
#include "stp/schedule/vocabulary.h"
#include "support/csv_sheets.h"
#include "support/folder.h"
#include "support/golden.h"

namespace stp {

namespace {

using testing::AllOf;
using testing::HasSubstr;

void expect_round_trip(const Schedule& schedule) {
  ASSERT_EQ(refusal([&] { validate(schedule); }), "");
  const bool whole = vocabulary_of(schedule) == Vocabulary::whole;
  for (const CsvForm form : kForms) {
    if (!whole && form != CsvForm::compute_only) {
      EXPECT_THAT(refusal([&] { to_csv(schedule, form); }), HasSubstr("passes of the vocabulary"));
      continue;
    }
    const std::string text = to_csv(schedule, form);
    const Schedule read = schedule_from_csv(text, "some/folder/a name.csv");
    EXPECT_EQ(read.name, "a name");
    EXPECT_EQ(read.placement, schedule.placement);
    EXPECT_EQ(read.microbatches, schedule.microbatches);
    EXPECT_EQ(read.ranks, schedule.ranks);
    EXPECT_EQ(to_csv(read, form), text);
  }
}

// ---- writing ----

TEST(Csv, IsWrittenAsTorchReadsIt) {
  const Schedule schedule = schedule_from_text(
      "# placement v\n"
      "F0.0 F0.1 F1.0 I1.0 F1.1&W1.0 B0.0 I1.1 W1.1 B0.1\n"
      "F0.0 F1.0 F0.1&B1.0 F1.1 B0.0 B1.1 B0.1\n",
      "x.txt");
  ASSERT_EQ(refusal([&] { validate(schedule); }), "");
  EXPECT_EQ(to_csv(schedule, CsvForm::compute_only),
            "0F0,0F1,3F0,3I0,(3F1;3W0)OVERLAP_F_B,0B0,3I1,3W1,0B1\r\n"
            "1F0,2F0,(1F1;2B0)OVERLAP_F_B,2F1,1B0,2B1,1B1\r\n");
  EXPECT_EQ(to_csv(schedule, CsvForm::compute_comms),
            "0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3I0,3SEND_B0,3RECV_F1,(3F1;3W0)OVERLAP_F_B,0RECV_B0,0B0,"
            "3I1,3SEND_B1,3W1,3REDUCE_GRAD,0RECV_B1,0B1,0REDUCE_GRAD\r\n"
            "1RECV_F0,1F0,1RECV_F1,2F0,2SEND_F0,2RECV_B0,(1F1;2B0)OVERLAP_F_B,2F1,2SEND_F1,1B0,1SEND_B0,"
            "2RECV_B1,2B1,2REDUCE_GRAD,1B1,1SEND_B1,1REDUCE_GRAD\r\n");
}

TEST(Csv, ReceivesStandInTheSendersOrderAsLateAsTheyMay) {
  // F0 is received first though F1 is needed first; F2 before B1 is sent, since F2 was sent earlier.
  const Schedule schedule =
      schedule_from_text("F0.0 F0.1 F0.2 B0.1 B0.0 B0.2\nF0.1 F0.0 B0.1 B0.0 F0.2 B0.2\n", "x.txt");
  EXPECT_EQ(to_csv(schedule, CsvForm::compute_comms),
            "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0RECV_B1,0B1,0RECV_B0,0B0,0RECV_B2,0B2,0REDUCE_GRAD\r\n"
            "1RECV_F0,1RECV_F1,1F1,1F0,1RECV_F2,1B1,1SEND_B1,1B0,1SEND_B0,1F2,1B2,1SEND_B2,1REDUCE_GRAD\r\n");
  expect_round_trip(schedule);
}

TEST(Csv, ABraidSendsInTheOrderOfItsActions) {
  for (const std::string braid : {"F0.0&F0.1", "F0.1&F0.0"}) {
    const Schedule schedule = schedule_from_text(braid + " B0.0 B0.1\nF0.0 F0.1 B0.0 B0.1\n", "x.txt");
    const std::string sends = braid == "F0.0&F0.1" ? "0SEND_F0,0SEND_F1" : "0SEND_F1,0SEND_F0";
    EXPECT_THAT(to_csv(schedule, CsvForm::compute_comms), HasSubstr(")OVERLAP_F_B," + sends));
    expect_round_trip(schedule);
  }
}

// The transfers of every pair of ranks, as each of the two has them in its row.
std::map<std::pair<int, int>, std::array<std::vector<std::string>, 2>> transfers_of_pairs(
    const Schedule& schedule) {
  std::map<std::pair<int, int>, std::array<std::vector<std::string>, 2>> pairs;
  const auto grid = grid_of(to_csv(schedule, CsvForm::compute_comms));
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const std::string& cell : grid[rank]) {
      if (!is_send(cell) && !is_receive(cell)) continue;
      const Parts part = parts_of(cell)[0];
      const bool backward = part.type.back() == 'B';
      const int here = std::stoi(part.stage), other = here + (backward == is_send(cell) ? -1 : 1);
      const int peer = schedule.placement.rank_of(other), sender = is_send(cell) ? here : other;
      pairs[{std::min(rank, peer), std::max(rank, peer)}][rank < peer ? 0 : 1].push_back(
          std::to_string(sender) + part.type.back() + part.microbatch);
    }
  }
  return pairs;
}

TEST(Csv, BothEndsOfAPairHaveAllTransfersInOneOrder) {
  size_t pairs = 0;
  const auto check = [&](const Schedule& schedule) {
    for (const auto& [pair, lists] : transfers_of_pairs(schedule)) {
      EXPECT_EQ(lists[0], lists[1]) << schedule.name << ", ranks " << pair.first << " and " << pair.second;
      ++pairs;
    }
  };
  for (int p = 2; p <= 6; ++p) check(stp_schedule(p, 3 * p + 2));
  for (const Golden& golden : golden_orders())
    if (is_single_and_whole(golden.schedule)) check(golden.schedule);
  EXPECT_GT(pairs, 200U);
}

TEST(Csv, WaitsStandBehindTheirSends) {
  const Schedule schedule = schedule_from_text("F0.0 F0.1 B0.0 I0.1 W0.1\nF0.0 B0.0 F0.1 B0.1\n", "x.txt");
  EXPECT_EQ(
      to_csv(schedule, CsvForm::compute_comms_waits),
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0I1,0WAIT_SEND_F1,0W1,0REDUCE_GRAD,"
      "0WAIT_REDUCE_GRAD\r\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,"
      "1WAIT_SEND_B1\r\n");
}

// ---- round trips ----

TEST(Csv, RoundTripsWhatGeneratorsMake) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 3 * p - 1; m <= 3 * p + 4; ++m) expect_round_trip(stp_schedule(p, m));
}

TEST(Csv, RoundTripsEveryPlacement) {
  for (int p = 1; p <= 5; ++p) {
    for (int v = 1; v <= 5; ++v) {
      expect_round_trip(in_stage_order(Placement::loop(p, v), 3));
      expect_round_trip(in_stage_order(Placement::wave(p, v), 3));
    }
  }
  expect_round_trip(in_stage_order(Placement::table({{0, 1}, {2, 5}, {3, 4}}), 2));
}

TEST(Csv, NumbersAsChunksARanksStagesInAscendingOrder) {
  const Schedule schedule = in_stage_order(Placement::table({{3, 0}, {1, 2}}), 2);
  const Schedule read = schedule_from_csv(to_csv(schedule, CsvForm::compute_comms), "x.csv");
  EXPECT_EQ(read.placement, Placement::v(2));
  EXPECT_EQ(read.placement.name(), "v");
  EXPECT_EQ(read.ranks, in_stage_order(Placement::v(2), 2).ranks);
}

TEST(Csv, RoundTripsTheGoldenOrders) {
  for (const Golden& golden : golden_orders()) {
    SCOPED_TRACE(golden.file);
    if (golden.schedule.placement.pipelines() == 1) expect_round_trip(golden.schedule);
  }
}

// ---- reading ----

TEST(Csv, AcceptsWhatTheGrammarAllows) {
  const Schedule good = schedule_from_text("F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1 B0.1\n", "x.txt");
  for (const std::string text : {
           "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n",
           "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
           "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",         // no line end
           "0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n",  // idle cells
           " 0F0 ,\t0F1, ,0B0,0B1 \r\n1F0,1B0,1F1,1B1\r\n",
           "00F0,0F01,0B000,0B1\n01F0,1B0,1F1,1B1\n",  // the grammar's numbers are digits
           "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0RESHARD,0REDUCE_GRAD\r\n"
           "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\r\n",
       }) {
    const Schedule read = schedule_from_csv(text, "x.csv");
    EXPECT_EQ(read.ranks, good.ranks) << text;
    EXPECT_EQ(read.placement, good.placement);
    EXPECT_EQ(read.microbatches, 2);
  }
}

TEST(Csv, TakesItsNameFromTheFile) {
  const auto name = [](const std::string& file) { return schedule_from_csv("0F0,0B0\n", file).name; };
  EXPECT_EQ(name("dualpipe_v.csv"), "dualpipe_v");
  EXPECT_EQ(name("a/b.c/my order.csv"), "my order");
  EXPECT_EQ(name("a/ .csv"), "schedule");
  EXPECT_EQ(name("a\nb.csv"), "a_b");
  EXPECT_EQ(name("\xff.csv"), "\xEF\xBF\xBD");
}

TEST(Csv, RefusesOtherCellsAndNamesLineRankAndCell) {
  const auto refuses = [](const std::string& cell, const std::string& why) {
    const std::string message = refusal_of("0F0,0B0\r\n1F0,," + cell + "\r\n");
    EXPECT_THAT(message,
                AllOf(HasSubstr("x.csv: line 2 (rank 1), cell 3, "), HasSubstr(why), HasSubstr("; ")))
        << cell;
  };
  const std::string not_an_action = "is not an action; write stage, F, I, W or B, microbatch, such as 0F3";
  for (const char* cell : {"F0", "1", "1X0", "1f0", "B", "-1B0", "+1B0", "1 B0", "1BB0", "1FB0",
                           "1OVERLAP_F_B", "1SEND0", "1F_0", "F0.0", "#",
                           "\xEF\xBB\xBF"
                           "1B0",
                           "1UNSHARDED", "1SEND_FB0"})
    refuses(cell, not_an_action);
  refuses("1B-0", "is not an action");
  refuses("1F", "has no microbatch; write stage");
  refuses("1W", "has no microbatch");
  refuses("1SEND_B", "has no microbatch");
  refuses("1B0junk", "has extra text after its action 1B0; remove it");
  refuses("1B0 1B1", "has extra text");
  refuses("1B0.5", "has extra text");
  refuses("1B0;1B1", "has a semicolon or a tab between actions");
  refuses("1UNSHARD0", "has extra text after its action 1UNSHARD");
  refuses("\"1B0\"", "is quoted; write cells without quotes");
  refuses("262144B0", "has too large a stage");
  refuses("99999999999999999999B0", "has too large a stage");
  refuses("1B1048576", "has too large a microbatch");
  refuses("1B99999999999999999999", "has too large a microbatch");
  refuses("(1B0;0W0", "lacks its closing bracket");
  refuses("(1B0;0W0)", "not followed by OVERLAP_F_B");
  refuses("(1B0;0W0)OVERLAP_F_BB", "not followed by OVERLAP_F_B");
  refuses("(1B0;0W0) OVERLAP_F_B", "not followed by OVERLAP_F_B");
  refuses("()OVERLAP_F_B", "overlaps 0 actions, and a braid has exactly two");
  refuses("(1B0)OVERLAP_F_B",
          "overlaps 1 action, and a braid has exactly two; write the action without brackets");
  refuses("(1B0;0W0;0W1)OVERLAP_F_B", "overlaps 3 actions, and a braid has exactly two");
  refuses("(1B0;(0W0;0W1)OVERLAP_F_B)OVERLAP_F_B", "nests one overlap in another");
  refuses("(1B0;)OVERLAP_F_B", "is not an action");
  refuses("(1B0; 0W0)OVERLAP_F_B", "is not an action");
  refuses("(1B0;1SEND_B0)OVERLAP_F_B",
          "overlaps 1SEND_B0, which computes nothing; give it a cell of its own");
  refuses("(1B0;1F0)OVERLAP_F_B", "1F0: appears a second time");
}

TEST(Csv, ExplainsTheLettersOfOldTorch) {
  for (const char* cell : {"1BW0", "1B", "1BW"}) {
    const std::string message = refusal_of("0F0,0B0\r\n1F0," + std::string(cell) + "\r\n");
    EXPECT_THAT(
        message,
        AllOf(HasSubstr("line 2 (rank 1), cell 2, " + std::string(cell)),
              HasSubstr("torch up to 2.5 wrote B for the input gradient and BW for the full backward"),
              HasSubstr("turn B into I and then BW into B")));
  }
  EXPECT_THAT(refusal_of("0F0,0B0,0W0\n"),
              AllOf(HasSubstr("line 1 (rank 0), cell 3, 0W0: follows a full backward"),
                    HasSubstr("torch up to 2.5")));
}

TEST(Csv, RefusesFilesThatDoNotFitTogether) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    EXPECT_THAT(refusal_of(text), AllOf(HasSubstr("x.csv: "), HasSubstr(what), HasSubstr("; "))) << text;
  };
  refuses("", "has no rows");
  refuses("\n", "line 1 (rank 0): does nothing");
  refuses("0F0,0B0\n\n", "line 2 (rank 1): does nothing");
  refuses("0F0,0B0\n,,\n", "line 2 (rank 1): does nothing");
  refuses("0F0,0B0\r\r\n", "line 1 (rank 0), cell 2, 0B0?: has extra text");
  refuses("0F0,0B0\n0F1,0B1\n",
          "line 2 (rank 1), cell 1, 0F1: stage 0 is on rank 0 already (line 1 (rank 0), cell 1, 0F0)");
  refuses("0F0,0B0\n2F0,2B0\n", "stage 1: is in no row, but stage 2 is");
  refuses("0F0,0B0,1F0,1B0\n2F0,2B0\n", "line 2 (rank 1): has 1 stage, and rank 0 has 2");
  refuses("0F0,0F0,0B0\n", "line 1 (rank 0), cell 2, 0F0: appears a second time");
  refuses("0B0,0F0\n", "line 1 (rank 0), cell 1, 0B0: precedes its F");
  refuses("0F0,0W0,0I0\n", "line 1 (rank 0), cell 2, 0W0: precedes its I");
  refuses("0F0,0F1,0B0,0B1\r\n1F0,1B0,1B1,1F1\r\n",
          "line 2 (rank 1), cell 3, 1B1: precedes its F; move it after");
  refuses("0F0,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n",
          "line 1 (rank 0), 0F1: is missing; add it before line 1 (rank 0), cell 3, 0B1");
  refuses("0F0,0W0\n", "line 1 (rank 0), 0I0: is missing; add it before line 1 (rank 0), cell 2, 0W0");
  refuses("0F0,0I0,0B0\n", "cell 3, 0B0: is a full backward, but its I or W is there too");
  refuses("0F0,0F2,0B0,0B2\n", "line 1 (rank 0), 0F1: is missing; add it: there are 3 microbatches");
  refuses("0F0\n", "line 1 (rank 0), 0B0: is missing");
  refuses("0F0,0I0\n", "line 1 (rank 0), 0W0: is missing");
  refuses("0F0,0F1048575,0B0\n", "0F1: is missing");
  EXPECT_THAT(refusal_of("0F0,1F0,0B0,1B0\n"), HasSubstr("deadlock"));  // validate() says it
  refuses("0F0;0B0\n", "cell 1, 0F0;0B0: has a semicolon or a tab between actions; separate cells by commas");
  refuses("0F0\t0B0\n", "separate cells by commas");
  refuses("(0F0;0B1)OVERLAP_F_B;0F2\n", "separate cells by commas");
  refuses("0F0,0B0,0REDUCE_GRAD,\n",
          "line 1 (rank 0), cell 4: is empty, but line 1 (rank 0), cell 3, 0REDUCE_GRAD makes this a "
          "compute_comms file");
  std::string rows;
  for (int i = 0; i <= kMaxRanks; ++i) rows += std::to_string(i) + "F0\n";
  refuses(rows, "line 4097 (rank 4096): is one row too many");
  std::string stages;
  for (int i = 0; i <= kMaxChunks; ++i) stages += std::to_string(i) + "F0,";
  refuses(stages, "chunks: 65 is out of range");
}

TEST(Csv, RefusesCommunicationThatDoesNotFit) {
  const std::string first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n";
  const std::string second = "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  ASSERT_EQ(refusal_of(first + second), "");
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const auto refuses = [&](const std::string& from, const std::string& to, const std::string& what) {
    EXPECT_THAT(refusal_of(replaced(first + second, from, to)),
                AllOf(HasSubstr("x.csv: "), HasSubstr(what), HasSubstr("; ")))
        << from << " → " << to;
  };
  refuses("0SEND_F1,", "", "line 1 (rank 0): 0SEND_F1 is missing; send what stage 1 on rank 1 needs");
  refuses("1RECV_F1,", "",
          "line 2 (rank 1), cell 3, 1F1: has no 1RECV_F1 before it, but stage 0 is on rank 0");
  refuses("0SEND_F1,", "0SEND_F1,0SEND_F1,", "line 1 (rank 0), cell 5, 0SEND_F1: appears a second time");
  refuses("0RECV_B0,0B0", "0B0,0RECV_B0", "cell 5, 0B0: has no 0RECV_B0 before it");
  refuses("0B1\n", "0B1,0RECV_B1\n", "0RECV_B1: appears a second time");
  refuses("0F0,0SEND_F0", "0SEND_F0,0F0", "0SEND_F0: precedes the action that makes its tensor, 0F0");
  refuses("0SEND_F0", "0SEND_F2", "0SEND_F2: there is no microbatch 2");
  refuses("0SEND_F0", "1SEND_F0", "1SEND_F0: stage 1 is on rank 1");
  refuses("0SEND_F0", "2SEND_F0", "2SEND_F0: there is no stage 2");
  refuses("0SEND_F0", "7UNSHARD", "7UNSHARD: there is no stage 7");
  refuses("0SEND_F0", "0SEND_B0", "0SEND_B0: has no other rank to exchange with");
  refuses("1RECV_F0", "1RECV_B0", "1RECV_B0: has no other rank to exchange with");
  refuses("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0",
          "ranks 0 and 1, transfer 1: rank 0 sends 0SEND_F0 (cell 2) while rank 1 receives 1RECV_F1 (cell "
          "1): neighbours "
          "that disagree on the order swap tensors silently");
  // Waits: one behind every send, or none.
  refuses("0B0,", "0B0,0WAIT_SEND_F0,",
          "line 1 (rank 0): 0WAIT_SEND_F1 is missing; wait for every send, or for none");
  refuses("0SEND_F0", "0WAIT_SEND_F0,0SEND_F0", "0WAIT_SEND_F0: precedes its 0SEND_F0");
  refuses("0SEND_F0", "0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0", "0WAIT_SEND_F0: appears a second time");
  refuses("0SEND_F0", "0SEND_F0,0WAIT_SEND_B0", "0WAIT_SEND_B0: has no other rank to exchange with");
  refuses("0B1\n", "0B1,1WAIT_REDUCE_GRAD\n", "1WAIT_REDUCE_GRAD: stage 1 is on rank 1");
  // The turn of the v stays on rank 1: there is nothing to send.
  EXPECT_THAT(refusal_of("0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
                         "1RECV_F0,1F0,1SEND_F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n"),
              HasSubstr("line 2 (rank 1), cell 3, 1SEND_F0: has no other rank to exchange with"));
}

// ---- files ----

using ReadSchedule = FolderTest;

TEST_F(ReadSchedule, GoesByTheEnding) {
  const Schedule schedule = stp_schedule(2, 5);
  const auto read = [&](const std::string& name, const std::string& text) {
    const Schedule found = read_schedule_file(write(name, text));
    EXPECT_EQ(found.ranks, schedule.ranks) << name;
    EXPECT_EQ(found.placement, schedule.placement) << name;
    return found.name;
  };
  EXPECT_EQ(read("read_schedule.csv", to_csv(schedule, CsvForm::compute_comms)), "read_schedule");
  EXPECT_EQ(read("read_schedule.txt", to_text(schedule)), "stp");
  EXPECT_EQ(read("read_schedule", to_text(schedule)), "stp");  // by its first line
  EXPECT_THAT(refusal([&] { read("read_schedule.xml", "<s/>"); }),
              HasSubstr("read_schedule.xml: is no schedule: it begins neither with {"));
  EXPECT_THAT(refusal([&] { read_schedule_file(folder_ + "/none.csv"); }),
              HasSubstr("none.csv: cannot be read"));
  EXPECT_THAT(refusal([&] { read_schedule_file(folder_); }), HasSubstr("is a folder"));
  EXPECT_TRUE(is_schedule_file("a.b.csv"));
  EXPECT_FALSE(is_schedule_file("a.csv.gz"));
}

}  // namespace
}  // namespace stp
