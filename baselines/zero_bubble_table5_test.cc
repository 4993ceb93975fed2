// The bubble rates of Table 5 of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), computed from the
// times that its authors profiled (its Table 9).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "baselines/registry.h"
#include "support/effort.h"
#include "support/order_times.h"

namespace stp {
namespace {

using testing::Each;
using testing::Le;

struct Row {
  int p, m, layers;
  PassCosts costs;  // milliseconds
  double one_f_one_b, interleaved, zb_h1, zb_h2, zb_1p, zb_2p;

  [[nodiscard]] double of_microbatch() const { return costs.F + costs.I + costs.W; }
  [[nodiscard]] double rate(double bubble) const { return bubble / (bubble + m * of_microbatch()); }
};

const std::vector<Row> kTable5 = {
    {8, 24, 22, {18.522, 18.086, 9.337, 0.601}, 0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433},
    {8, 32, 22, {18.513, 18.086, 9.331, 0.626}, 0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039},
    {8, 64, 22, {18.546, 18.097, 9.321, 0.762}, 0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026},
    {32, 96, 62, {10.419, 10.207, 7.715, 0.408}, 0.2646, 0.1493, 0.1421, 0.0641, 0.1421, 0.0038},
    {32, 128, 62, {10.408, 10.204, 7.703, 0.408}, 0.2168, 0.1164, 0.1106, 0.0490, 0.1106, 0.0029},
    {32, 256, 62, {10.402, 10.248, 7.698, 0.460}, 0.1352, 0.0624, 0.0594, 0.0257, 0.0594, 0.0018}};

Schedule make(const std::string& name, const Row& row, double kept_for_W = 1) {
  return make_schedule(find_generator(name),
                       {.pp = row.p, .microbatches = row.m, .costs = row.costs, .kept_for_W = kept_for_W});
}

// As the table prints it. The cost of an order is the longest span of a rank.
double printed(double rate) { return std::round(rate * 1e4) / 1e4; }
double printed(const Row& row, const Schedule& schedule) {
  return printed(row.rate(run_order(schedule, row.costs).longest_span() - row.m * row.of_microbatch()));
}

TEST(ZeroBubbleTable5, RatesOfOrdersAreThePrintedOnes) {
  for (const Row& row : kTable5) {
    SCOPED_TRACE("p=" + std::to_string(row.p) + " m=" + std::to_string(row.m));
    EXPECT_DOUBLE_EQ(printed(row, make("1f1b", row)), row.one_f_one_b);
    EXPECT_DOUBLE_EQ(printed(row, make("zb-h2", row)), row.zb_h2);
    EXPECT_DOUBLE_EQ(printed(row, make("zb-1p", row)), row.zb_1p);
  }
}

// Its Table 1: of the s·b·(34h + 5as) bytes that a layer keeps, W needs 32·s·b·h. Held whole until W, the
// same limit leaves a rate of up to 0.10.
TEST(ZeroBubbleTable5, Zb2psRatesAreThePrintedOnesIfIFreesWhatWDoesNotNeed) {
  for (const Row& row : kTable5) {
    const double h = row.p == 8 ? 2304 : 6144, a = row.p == 8 ? 24 : 48;
    for (const double kept_for_W : {0., 32 * h / (34 * h + 5 * a * 1024)}) {
      const Schedule schedule = make("zb-2p", row, kept_for_W);
      EXPECT_DOUBLE_EQ(printed(row, schedule), row.zb_2p) << title(schedule) << ' ' << kept_for_W;
      EXPECT_THAT(peak_activations(schedule, true), Each(Le(2 * row.p))) << title(schedule);
    }
    const Schedule schedule = make("zb-2p", row);
    const double until_W = printed(row, make("zb-2p", row));
    EXPECT_GT(until_W, row.zb_2p) << title(schedule);
    EXPECT_LT(until_W, 0.105) << title(schedule);
  }
}

// These two columns are closed forms: (p − 1)(F + I − W + 4·hop) for ZB-H1, which belongs to another order
// than the one that its authors released, and (p − 1)S/v + ((2v − 1)p − 2)·hop for 1F1B-I, with S = F + I + W
// of a rank, which leaves out hops that the order's steady state pays.
TEST(ZeroBubbleTable5, TheOtherColumnsAreClosedFormsBelowWhatOrdersTake) {
  for (const Row& row : kTable5) {
    SCOPED_TRACE("p=" + std::to_string(row.p) + " m=" + std::to_string(row.m));
    const int v = (row.layers + 2) / row.p;  // one layer a chunk; embedding and head count as one each
    const auto& [F, I, W, hop] = row.costs;
    EXPECT_DOUBLE_EQ(printed(row.rate((row.p - 1) * (F + I - W + 4 * hop))), row.zb_h1);
    EXPECT_DOUBLE_EQ(
        printed(row.rate((row.p - 1) * row.of_microbatch() / v + ((2 * v - 1) * row.p - 2) * hop)),
        row.interleaved);
    const PassCosts of_chunk{row.costs.F / v, row.costs.I / v, row.costs.W / v, row.costs.p2p};
    const Schedule interleaved = make_schedule(
        find_generator("1f1b-i"), {.pp = row.p, .microbatches = row.m, .chunks = v, .costs = of_chunk});
    const double of_order =
        row.rate(run_order(interleaved, of_chunk).longest_span() - row.m * row.of_microbatch());
    EXPECT_GT(of_order, row.interleaved);
    EXPECT_LT(of_order, row.interleaved + 0.0036);
    EXPECT_GT(printed(row, make("zb-h1", row)), row.zb_h1);
    EXPECT_LT(printed(row, make("zb-h1", row)), row.zb_h1 + 0.024);
  }
}

// For many sizes, limits and costs.
TEST(ZbAuto, LimitsCountUntilWOrOnRequestUntilI) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (const int m : {1, 2, p, 2 * p + 1, 5 * p})
      for (const int limit : {1, 2, p, 2 * p, 3 * p})
        for (const PassCosts& costs :
             {kEqual, kUnequal, PassCosts{1, 2, 0.5, 0.2}, PassCosts{1, 0.4, 2, 0}}) {
          for (const int kept_for_W : {0, 1}) {
            const Schedule schedule =
                make_schedule(find_generator("zb-auto"), {.pp = p,
                                                          .microbatches = m,
                                                          .costs = costs,
                                                          .options = {limit},
                                                          .kept_for_W = double{1} * kept_for_W});
            EXPECT_THAT(peak_activations(schedule, kept_for_W == 0), Each(Le(limit)))
                << title(schedule) << ' ' << limit;
          }
        }
}

}  // namespace
}  // namespace stp
