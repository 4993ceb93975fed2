// Emulated links: every byte is moved once, none too early, and the last one on time.
#include "stp/emulation/link_emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace stp {
namespace {

TEST(LinkEmulation, EveryByteIsMovedOnceInOrder) {
  for (const int64_t bytes : {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{4096},
                              int64_t{99999}, (int64_t{1} << 33) + 3})
    for (const int ctas : {1, 2, 7, 16, 64})
      for (const int64_t piece : {int64_t{1}, int64_t{1000}, int64_t{1} << 16}) {
        if (bytes > int64_t{1} << 30 && piece == 1) continue;
        const LinkEmulation link = emulate_links(bytes, {1e-6, 1e-3}, ctas, piece);
        ASSERT_GE(link.ctas, 1);
        ASSERT_LE(link.ctas, ctas);
        int64_t at = 0;
        for (int cta = 0; cta < link.ctas; ++cta) {
          ASSERT_EQ(link.begin(cta), at);
          ASSERT_EQ(at % 16, 0);
          ASSERT_GE(link.pieces(cta), 1);
          for (int64_t index = 0; index < link.pieces(cta); ++index) {
            ASSERT_EQ(link.piece_begin(cta, index), at);
            ASSERT_GT(link.piece_end(cta, index), at);
            ASSERT_LE(link.piece_end(cta, index) - at, (piece + 15) / 16 * 16);
            at = link.piece_end(cta, index);
          }
          ASSERT_EQ(link.end(cta), at);
        }
        ASSERT_EQ(at, bytes);
      }
}

// Nothing is due before the latency and its share of the transfer are over; every CTA ends with the call.
TEST(LinkEmulation, IsEvenAndEndsWithTheCall) {
  const LinkEmulation link = emulate_links(1'000'000, {2e-6, 1e-3}, 4, 65536);
  ASSERT_EQ(link.ctas, 4);
  for (int cta = 0; cta < link.ctas; ++cta) {
    double before = 2000;
    for (int64_t index = 0; index < link.pieces(cta); ++index) {
      const double due = link.due_ns(cta, index);
      EXPECT_GT(due, before);
      const double share = static_cast<double>(link.piece_end(cta, index) - link.begin(cta)) /
                           static_cast<double>(link.end(cta) - link.begin(cta));
      EXPECT_NEAR(due, 2000 + 1e6 * share, 1e-6);
      before = due;
    }
    EXPECT_DOUBLE_EQ(before, 1'002'000);
  }
}

TEST(LinkEmulation, OfNothingHasOneIdleCta) {
  const LinkEmulation link = emulate_links(0, {5e-6, 0}, 16, 4096);
  EXPECT_EQ(link.ctas, 1);
  EXPECT_EQ(link.pieces(0), 0);
  EXPECT_EQ(link.latency_ns, 5000);
}

TEST(LinkEmulation, RefusesWhatCannotBeEmulated) {
  EXPECT_THROW(emulate_links(-1, {}, 1, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {-1, 0}, 1, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {0, -1}, 1, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {INFINITY, 0}, 1, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {0, NAN}, 1, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {}, 0, 1), std::logic_error);
  EXPECT_THROW(emulate_links(1, {}, 1, 0), std::logic_error);
}

// A link within a node (200 GB/s) needs more CTAs than one between nodes (25 GB/s); collectives copy their
// bytes more than once.
TEST(LinkEmulation, FastLinksHaveAsManyCtasAsCopyThatFast) {
  Replay replay;
  replay.cta_bytes_per_s = 40e9;
  const auto ctas = [&](CallKind kind, double bytes_per_s) {
    return link_ctas(replay, kind, 1'000'000, {1e-3, 1e6 / bytes_per_s}, 4);
  };
  EXPECT_EQ(ctas(CallKind::transfer, 25e9), kLinkCtas);
  EXPECT_EQ(ctas(CallKind::transfer, 199e9), 5);
  EXPECT_EQ(ctas(CallKind::all_reduce, 199e9), 16);  // 12.4
  EXPECT_EQ(ctas(CallKind::all_reduce, 399e9), 25);
  EXPECT_EQ(ctas(CallKind::all_gather, 399e9), 20);
  EXPECT_EQ(ctas(CallKind::reduce_scatter, 799e9), 25);
  EXPECT_EQ(ctas(CallKind::transfer, 1e15), 64);
  EXPECT_EQ(link_ctas(replay, CallKind::transfer, 1'000'000, {0, 0}, 2), kLinkCtas);
  EXPECT_EQ(link_ctas(replay, CallKind::all_reduce, 0, {1e-6, 0}, 2), 16);
  replay.most_ctas = replay.collective_ctas = 3;
  EXPECT_EQ(ctas(CallKind::all_reduce, 1e15), 3);
}

TEST(LinkEmulation, LinksCarryARingsShare) {
  for (const int ranks : {2, 3, 8})
    EXPECT_EQ(link_bytes_again(24'000, ranks), 24'000 * 2 * (ranks - 1) / ranks - 24'000);
  EXPECT_EQ(link_bytes_again(7, 4), 3);
}

}  // namespace
}  // namespace stp
