// How layers are divided over the virtual stages, against the paper's partitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "stp/model/partition.h"
#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(PaperPartition, KeepsEveryLayerOrRefuses) {
  int made = 0;
  for (int layers = 1; layers <= 64; ++layers) {
    for (int stages = 1; stages <= 80; ++stages) {
      std::vector<int> chunks;
      const std::string message = refusal([&] { chunks = paper_partition(layers, stages); });
      const bool possible = (layers + 2) % stages == 0 && (layers + 2) / stages >= 2;
      EXPECT_EQ(message.empty(), possible || stages == 1)
          << layers << " layers, " << stages << " stages: " << message;
      if (!message.empty()) {
        EXPECT_THAT(message, AllOf(StartsWith("parallel.pp: "), HasSubstr("; ")));
        continue;
      }
      ++made;
      ASSERT_EQ(chunks.size(), static_cast<size_t>(stages));
      EXPECT_EQ(std::accumulate(chunks.begin(), chunks.end(), 0), layers);
      for (int i = 0; i < stages; ++i)
        EXPECT_EQ(chunks[i], (layers + 2) / stages - (i + 1 == stages ? 2 : 0));
    }
  }
  EXPECT_GT(made, 100);
}

TEST(PaperPartition, RefusesWithTheReason) {
  EXPECT_THAT(refusal([] { paper_partition(33, 3); }),
              AllOf(HasSubstr("33 layers"), HasSubstr("3 virtual stages"), HasSubstr("layers_per_chunk")));
  EXPECT_THAT(refusal([] { paper_partition(30, 6); }), HasSubstr("do not divide"));
  EXPECT_THAT(refusal([] { paper_partition(30, 33); }), HasSubstr("more than the model's 30 layers"));
  EXPECT_THAT(refusal([] { paper_partition(6, 8); }), HasSubstr("negative number of layers"));
}

TEST(EvenPartition, GivesTheRemainderToTheFirstStages) {
  EXPECT_THAT(even_partition(30, 4), ElementsAre(8, 8, 7, 7));
  EXPECT_THAT(even_partition(32, 4), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(even_partition(5, 5), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(even_partition(5, 1), ElementsAre(5));
  EXPECT_THAT(refusal([] { even_partition(5, 6); }),
              AllOf(StartsWith("layers_per_chunk: "), HasSubstr("6 virtual stages"), HasSubstr("5 layers")));
}

}  // namespace
}  // namespace stp
