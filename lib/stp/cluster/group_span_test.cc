#include "stp/cluster/group_span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stp {
namespace {

using testing::ElementsAre;

// Round numbers: 3 µs and 0.5 µs a hop within a node at 100 GB/s, 5 µs and 20 GB/s between nodes.
HardwareProfile cluster(int gpus_per_node, int adapters_per_node) {
  HardwareProfile profile{};
  profile.gpus_per_node = gpus_per_node;
  profile.adapters_per_node = adapters_per_node;
  profile.all_reduce_latency_s = 3e-6;
  profile.all_reduce_hop_latency_s = 0.5e-6;
  profile.all_reduce_bus_bytes_per_s = 100e9;
  profile.within_node = {1e-6, 80e9};
  profile.between_nodes = {5e-6, 20e9};
  return profile;
}

std::vector<int> every(int step, int count, int first = 0) {
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(first + i * step);
  return members;
}

TEST(SpanOf, CountsNodesAndTheAdaptersThatTheMembersHave) {
  const HardwareProfile profile = cluster(8, 8);
  EXPECT_EQ(span_of(profile, every(1, 8)), (GroupSpan{8, 1, 8}));
  EXPECT_EQ(span_of(profile, every(1, 8, 4)), (GroupSpan{8, 2, 4}));        // ranks 4 to 11
  EXPECT_EQ(span_of(profile, every(1, 12)), (GroupSpan{12, 2, 4}));         // the second node has four
  EXPECT_EQ(span_of(profile, every(4, 4)), (GroupSpan{4, 2, 2}));           // ranks 0, 4, 8, 12
  EXPECT_EQ(span_of(profile, every(8, 4, 3)), (GroupSpan{4, 4, 1}));        // one on each node
  EXPECT_EQ(span_of(profile, every(8, 2), {0, 16}), (GroupSpan{2, 2, 1}));  // each has an adapter of its own
}

TEST(SpanOf, SharesAdaptersAmongAllThatCommunicate) {
  const HardwareProfile two = cluster(8, 2);
  EXPECT_EQ(span_of(two, every(8, 2)), (GroupSpan{2, 2, 1}));                 // alone
  EXPECT_EQ(span_of(two, every(8, 2), {0, 16}), (GroupSpan{2, 2, 0.25}));     // eight groups on two adapters
  EXPECT_EQ(span_of(two, every(1, 16), {0, 16}), (GroupSpan{16, 2, 2}));      // one group has both
  EXPECT_EQ(span_of(two, every(8, 2, 4), {4, 12}), (GroupSpan{2, 2, 0.25}));  // four ranks on one of the two
  EXPECT_EQ(span_of(two, every(4, 4), {0, 16}), (GroupSpan{4, 2, 0.5}));      // one of four on each of two
  const HardwareProfile sixteen = cluster(8, 16);                             // two for each GPU
  EXPECT_EQ(span_of(sixteen, every(8, 2)), (GroupSpan{2, 2, 2}));
}

TEST(AllReduceSeconds, OnOneNodeDoesNotDependOnThePlace) {
  const HardwareProfile profile = cluster(8, 8);
  for (const int ranks : {1, 2, 4, 8})
    for (const double bytes : {0.0, 1e3, 1e9}) {
      const GroupSpan span = span_of(profile, every(1, ranks, 8), {0, 16});
      EXPECT_EQ(all_reduce_seconds(profile, bytes, span), all_reduce_seconds(profile, bytes, ranks));
      EXPECT_EQ(half_all_reduce_seconds(profile, bytes, span),
                half_all_reduce_seconds(profile, bytes, ranks));
    }
}

// 480 GB/s of bus bandwidth, which no direction of the links has.
TEST(AllReduceSeconds, InTheSwitchSpeedsUpNoHalfOfOne) {
  HardwareProfile profile = cluster(8, 8);
  const double ring = all_reduce_seconds(profile, 1e9, 8), half = half_all_reduce_seconds(profile, 1e9, 8);
  profile.all_reduce_measured = {{.ranks = 8, .points = {{1e6, ring / 10}, {1e9, ring / 2}}}};
  EXPECT_DOUBLE_EQ(half_all_reduce_seconds(profile, 1e9, 8), (ring / 2 + profile.all_reduce_latency_s) / 2);
  profile.all_reduce_measured[0].in_switch = true;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e9, 8), ring / 2);
  EXPECT_DOUBLE_EQ(half_all_reduce_seconds(profile, 1e9, 8), half);
  EXPECT_DOUBLE_EQ(half_all_reduce_seconds(profile, 1e6, 8),
                   (ring / 10 + profile.all_reduce_latency_s) / 2);  // slower than a ring
}

TEST(AllReduceSeconds, OfTwoGpusOnTwoNodesSendsAllBytesOnceEachWay) {
  const HardwareProfile profile = cluster(8, 8);
  const GroupSpan span = span_of(profile, {0, 8}, {0, 16});
  // Latency, two steps between nodes; half the bytes in each, through one adapter.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e9, span), 3e-6 + 2 * 5e-6 + 1e9 / 20e9);
  EXPECT_DOUBLE_EQ(half_all_reduce_seconds(profile, 1e9, span), 3e-6 + 5e-6 + 0.5e9 / 20e9);
  // With one adapter per node, eight such groups at once take eight times as long.
  const HardwareProfile one = cluster(8, 1);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(one, 1e9, span_of(one, {0, 8}, {0, 16})), 3e-6 + 2 * 5e-6 + 8e9 / 20e9);
}

TEST(AllReduceSeconds, OfSixteenGpusOnTwoNodesIsARingOverAllAdapters) {
  // Of 30 steps 28 are within nodes. Eight adapters carry 160 GB/s: the links within the nodes limit.
  const HardwareProfile fast = cluster(8, 8);
  const double latency = 3e-6 + 28 * 0.5e-6 + 2 * 5e-6;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(fast, 1e9, span_of(fast, every(1, 16), {0, 16})),
                   latency + 1e9 * 30 / 16 / 100e9);
  // Two carry 40 GB/s.
  const HardwareProfile slow = cluster(8, 2);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(slow, 1e9, span_of(slow, every(1, 16), {0, 16})),
                   latency + 1e9 * 30 / 16 / 40e9);
}

// Bus bandwidth as nccl-tests define it does not depend on the number of nodes.
TEST(AllReduceSeconds, ReachesTheBusBandwidthOfAllAdaptersOnManyNodes) {
  HardwareProfile profile = cluster(8, 8);
  profile.all_reduce_bus_bytes_per_s = 230e9;
  profile.between_nodes = {5e-6, 23.5e9};
  for (const int nodes : {2, 4, 16}) {
    const int ranks = 8 * nodes;
    const double seconds = all_reduce_seconds(profile, 16e9, span_of(profile, every(1, ranks), {0, ranks}));
    EXPECT_NEAR(16e9 / seconds * ring_share(ranks) / 188e9, 1, 0.01) << nodes;
  }
}

TEST(AdapterOf, IsThatOfTheGpusPlaceOnItsNode) {
  const auto adapters = [](int gpus, int per_node) {
    std::vector<int> of_node;
    for (int rank = gpus; rank < 2 * gpus; ++rank)
      of_node.push_back(adapter_of(cluster(gpus, per_node), rank));
    return of_node;
  };
  EXPECT_THAT(adapters(8, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(adapters(8, 4), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(adapters(8, 3), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2));
  EXPECT_THAT(adapters(4, 8), ElementsAre(0, 1, 2, 3));  // two each
  EXPECT_EQ(adapters_per_gpu(cluster(4, 8)), 2);
  EXPECT_EQ(adapters_per_gpu(cluster(8, 4)), 1);
}

TEST(TransferBetweenNodesSeconds, SharesTheAdapterAmongTheSends) {
  EXPECT_DOUBLE_EQ(transfer_between_nodes_seconds(cluster(8, 8), 1e9, 1), 5e-6 + 1e9 / 20e9);
  EXPECT_DOUBLE_EQ(transfer_between_nodes_seconds(cluster(8, 4), 1e9, 2), 5e-6 + 2e9 / 20e9);
  EXPECT_DOUBLE_EQ(transfer_between_nodes_seconds(cluster(4, 8), 1e9, 2), 5e-6 + 1e9 / 20e9);
}

}  // namespace
}  // namespace stp
