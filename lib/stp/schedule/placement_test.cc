// Which rank and chunk each virtual stage is.
#include "stp/schedule/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"

namespace stp {
namespace {

using testing::HasSubstr;

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

TEST(Placement, LoopAndWaveAreBijective) {
  for (int p = 1; p <= 9; ++p)
    for (int v = 1; v <= 7; ++v) {
      expect_bijective(Placement::loop(p, v));
      expect_bijective(Placement::wave(p, v));
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

// A chunk that follows another begins on the rank where that one ended.
TEST(Placement, WaveGoesDownAndUpInTurn) {
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 7; ++v) {
      const Placement wave = Placement::wave(p, v);
      EXPECT_EQ(wave.name(), v == 1 ? "loop" : v == 2 ? "v" : "wave");
      EXPECT_EQ(wave.rank_of(0), 0);
      for (int chunk = 1; chunk < v; ++chunk) EXPECT_EQ(wave.rank_of(chunk * p), wave.rank_of(chunk * p - 1));
    }
    EXPECT_EQ(Placement::wave(p, 2), Placement::v(p));
    EXPECT_EQ(Placement::wave(p, 1), Placement::loop(p, 1));
  }
  for (const int r : {0, 1, 2, 3}) EXPECT_EQ(Placement::wave(4, 3).stage(r, 2), 8 + r);
}

TEST(Placement, TableIsRecognised) {
  for (int p = 1; p <= 4; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (const Placement& known : {Placement::loop(p, v), Placement::wave(p, v)}) {
        std::vector<std::vector<int>> rows(p);
        for (int rank = 0; rank < p; ++rank)
          for (int chunk = 0; chunk < v; ++chunk) rows[rank].push_back(known.stage(rank, chunk));
        const Placement table = Placement::table(rows);
        EXPECT_EQ(table, known);
        EXPECT_EQ(table.name(), p == 1 ? "loop" : known.name());
      }
    }
  }
  const Placement table = Placement::table({{0, 1}, {2, 5}, {4, 3}});
  EXPECT_EQ(table.name(), "table");
  EXPECT_EQ(table.stage(2, 1), 3);
  expect_bijective(table);
  EXPECT_NE(table, Placement::v(3));
}

TEST(Placement, RefusesTablesThatAreNone) {
  const auto refuses = [](const std::vector<std::vector<int>>& rows, const std::string& what) {
    EXPECT_THAT(refusal([&] { Placement::table(rows); }), HasSubstr(what));
  };
  refuses({}, "placement: has no virtual stages");
  refuses({{}, {}}, "placement: has no virtual stages");
  refuses({{0, 1}, {2}}, "placement[1]: rank 1 has 1 chunk, rank 0 has 2");
  refuses({{0, 1}, {2, 1}}, "placement[1][1]: virtual stage 1 is on rank 0 already");
  refuses({{0, 1}, {2, 4}}, "placement[1][1]: there is no virtual stage 4");
  refuses({{0, -1}, {2, 3}}, "placement[0][1]: there is no virtual stage -1");
}

TEST(Placement, IsFoundByNameOrRefused) {
  EXPECT_EQ(Placement::named("wave", 4, 3), Placement::wave(4, 3));
  EXPECT_EQ(Placement::named("loop", 4, 3).stage(1, 2), 9);
  EXPECT_EQ(Placement::named("v", 4, 2).stage(1, 1), 6);
  EXPECT_THAT(refusal([] { Placement::named("v", 4, 3); }), HasSubstr("chunks"));
  EXPECT_EQ(Placement::named("bidirectional", 4, 2), Placement::bidirectional(4));
  EXPECT_THAT(refusal([] { Placement::named("bidirectional", 3, 2); }), HasSubstr("pp: placement"));
  EXPECT_THAT(refusal([] { Placement::named("w", 4, 2); }), HasSubstr("\"w\" is not a placement"));
}

}  // namespace
}  // namespace stp
