// The pace of paced calls: every byte once, none too soon, the last just in time.
#include "stp/emulation/pacing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace stp {
namespace {

TEST(Pace, EveryByteIsMovedOnceInOrder) {
  for (const int64_t bytes : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{4096},
                              int64_t{99999}, (int64_t{1} << 33) + 3})
    for (const int ctas : {1, 2, 7, 16, 64})
      for (const int64_t piece : {int64_t{1}, int64_t{1000}, int64_t{1} << 16}) {
        if (bytes > int64_t{1} << 30 && piece == 1) continue;
        const Pace pace = make_pace(bytes, {1e-6, 1e-3}, ctas, piece);
        ASSERT_GE(pace.ctas, 1);
        ASSERT_LE(pace.ctas, ctas);
        int64_t at = 0;
        for (int cta = 0; cta < pace.ctas; ++cta) {
          ASSERT_EQ(pace.begin(cta), at);
          ASSERT_EQ(at % 16, 0);
          ASSERT_GE(pace.pieces(cta), 1);
          for (int64_t index = 0; index < pace.pieces(cta); ++index) {
            ASSERT_EQ(pace.piece_begin(cta, index), at);
            ASSERT_GT(pace.piece_end(cta, index), at);
            ASSERT_LE(pace.piece_end(cta, index) - at, (piece + 15) / 16 * 16);
            at = pace.piece_end(cta, index);
          }
          ASSERT_EQ(pace.end(cta), at);
        }
        ASSERT_EQ(at, bytes);
      }
}

// Nothing is due before the latency and its share of the transfer are over; every CTA ends with the call.
TEST(Pace, IsEvenAndEndsWithTheCall) {
  const Pace pace = make_pace(1'000'000, {2e-6, 1e-3}, 4, 65536);
  ASSERT_EQ(pace.ctas, 4);
  for (int cta = 0; cta < pace.ctas; ++cta) {
    double before = 2000;
    for (int64_t index = 0; index < pace.pieces(cta); ++index) {
      const double due = pace.due_ns(cta, index);
      EXPECT_GT(due, before);
      const double share = static_cast<double>(pace.piece_end(cta, index) - pace.begin(cta)) /
                           static_cast<double>(pace.end(cta) - pace.begin(cta));
      EXPECT_NEAR(due, 2000 + 1e6 * share, 1e-6);
      before = due;
    }
    EXPECT_DOUBLE_EQ(before, 1'002'000);
  }
}

TEST(Pace, OfNothingHasOneIdleCta) {
  const Pace pace = make_pace(0, {5e-6, 0}, 16, 4096);
  EXPECT_EQ(pace.ctas, 1);
  EXPECT_EQ(pace.pieces(0), 0);
  EXPECT_EQ(pace.latency_ns, 5000);
}

TEST(Pace, RefusesWhatCannotBe) {
  EXPECT_THROW(make_pace(-1, {}, 1, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {-1, 0}, 1, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {0, -1}, 1, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {INFINITY, 0}, 1, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {0, NAN}, 1, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {}, 0, 1), std::logic_error);
  EXPECT_THROW(make_pace(1, {}, 1, 0), std::logic_error);
}

TEST(Pace, LinksCarryARingsShare) {
  EXPECT_DOUBLE_EQ(link_share(CallKind::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(link_share(CallKind::all_reduce, 8), 1.75);
  for (const int ranks : {2, 3, 8})
    EXPECT_EQ(static_cast<double>(link_bytes_again(24'000, ranks)),
              std::round((link_share(CallKind::all_reduce, ranks) - 1) * 24'000));
  EXPECT_EQ(link_bytes_again(7, 4), 3);
  EXPECT_DOUBLE_EQ(link_share(CallKind::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(link_share(CallKind::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(link_share(CallKind::send, 2), 1);
  EXPECT_DOUBLE_EQ(link_share(CallKind::receive, 2), 1);
}

}  // namespace
}  // namespace stp
