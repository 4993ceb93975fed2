#include "stp/backends/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Backends, AreMadeByName) {
  EXPECT_EQ(built_in_backends().front().name, "cpu");
  const auto backend = make_backend("cpu", {.world_size = 3});
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_EQ(backend->world_size(), 3);
}

TEST(Backends, OfOtherNamesAreRefusedWithThoseThatAre) {
  EXPECT_THAT(refusal([] { make_backend("tpu", {}); }),
              AllOf(HasSubstr("--backend"), HasSubstr("\"tpu\" is not built in"), HasSubstr("use cpu")));
  EXPECT_THAT(refusal([] { make_replay_backend("tpu", {}, {}); }), HasSubstr("\"tpu\" is not built in"));
}

// On any build and machine: cuda is made, or the error says what is missing and what to do.
TEST(Backends, CudaIsThereOrSaysWhyNot) {
  std::unique_ptr<Backend> backend;
  const std::string lack = refusal([&] { backend = make_backend("cuda", {.world_size = 2}); });
  if (backend) {
    EXPECT_EQ(backend->name(), "cuda");
    EXPECT_EQ(backend->world_size(), 2);
  } else if (built_in_backends().back().name == "cuda") {
    EXPECT_THAT(lack, AllOf(HasSubstr("no CUDA device: "), HasSubstr("; run with --backend cpu")));
  } else {
    EXPECT_THAT(lack, AllOf(HasSubstr("this build has no CUDA backend"), HasSubstr("nvcc")));
  }
}

TEST(Backends, HaveVisionButForCuda) {
  for (const BuiltIn& each : built_in_backends()) EXPECT_EQ(each.vision, each.name != "cuda") << each.name;
}

TEST(Backends, OfReplaysAreOneRank) {
  const Replay replay{.rank = 1, .times = {}};
  for (const BuiltIn& each : built_in_backends()) {
    const std::string& name = each.name;
    std::unique_ptr<Backend> backend;
    const std::string lack = refusal([&] { backend = make_replay_backend(name, {.world_size = 4}, replay); });
    if (backend) {
      EXPECT_EQ(backend->name(), name);
      EXPECT_EQ(backend->world_size(), 4);
      EXPECT_EQ(backend->ranks(), std::vector<int>{1});
    } else {
      EXPECT_THAT(lack, HasSubstr(each.emulates ? "replays no real kernels" : "no CUDA device: ")) << name;
    }
  }
}

}  // namespace
}  // namespace stp
