#include "stp/cuda/nccl/nccl_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

NcclOptions read(const std::vector<std::string>& texts) { return read_nccl_options("--nccl", texts); }

TEST(NcclTuning, IsSetByGroup) {
  const NcclOptions options =
      read({"all:min_ctas=2,max_ctas=8", "p2p:max_ctas=4", "tp:cluster=0,min_ctas=1"});
  EXPECT_EQ(options.of("dp").max_ctas, 8);
  EXPECT_EQ(options.of("p2p").max_ctas, 4);
  EXPECT_EQ(options.of("p2p").min_ctas, 2) << "what all groups have, where it is not said else";
  for (const char* name : {"tp", "tp inside ops"}) {
    EXPECT_EQ(options.of(name).cga_cluster_size, 0);
    EXPECT_EQ(options.of(name).min_ctas, 1);
    EXPECT_EQ(options.of(name).max_ctas, 8);
  }
  EXPECT_EQ(read({}).of("tp").max_ctas, 0);
  for (const std::string group : {"cp", "vocabulary", "embedding", "pipelines", "world"})
    EXPECT_EQ(read({group + ":max_ctas=2"}).of(group).max_ctas, 2);
}

TEST(NcclTuning, RefusesWhatMakesNoSense) {
  const std::pair<std::string, std::string> cases[] = {
      {"pp:max_ctas=2", "there is no group \"pp\""},
      {"p2p", "nothing is set"},
      {"p2p:", "nothing is set"},
      {"p2p:max_ctas", "has no value"},
      {"p2p:max_ctas=0", "max_ctas=0 is no number from 1 to 64"},
      {"p2p:max_ctas=2x", "max_ctas=2x is no number"},
      {"p2p:ctas=2", "there is no \"ctas\""},
      {"tp:min_ctas=4,max_ctas=2", "min_ctas is above max_ctas"}};
  for (const auto& [text, problem] : cases)
    EXPECT_THAT(refusal([&] { read({text}); }),
                AllOf(HasSubstr("--nccl"), HasSubstr(text), HasSubstr(problem)));
}

}  // namespace
}  // namespace stp::cuda
