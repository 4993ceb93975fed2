// Which saved tensors are offloaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stp/model/offload.h"
#include "support/models.h"

namespace stp {
namespace {

TEST(OffloadedTensors, AreWholeOnesUpToTheRatio) {
  for_each_shape([](const ModelConfig& config, Implementation implementation, const Shape& shape) {
    const double all = offloaded_bytes(config, shape, implementation, {3}, 1)[0];
    double kept = 0, largest = 0;
    for (const Unit unit : {Unit::attn, Unit::mlp}) {
      kept += kept_bytes(config, shape, implementation, unit);
      for (const SavedTensor& tensor : saved_tensors(config, shape, implementation, unit))
        largest = std::max(largest, tensor.bytes);
    }
    EXPECT_DOUBLE_EQ(all, 3 * kept);
    for (const double ratio : {0.0, 0.1, 0.25, 0.5, 0.75, 0.9}) {
      const double bytes = offloaded_bytes(config, shape, implementation, {3}, ratio)[0];
      EXPECT_LE(bytes, ratio * all);
      EXPECT_GT(bytes + largest, ratio * all) << "any other would fit too";
    }
    EXPECT_EQ(offloaded_bytes(config, shape, implementation, {0}, 1)[0], 0);
  });
}

TEST(OffloadedTensors, AreTakenInTheOrderOfTheForwardWhereTheyFit) {
  const ModelConfig config = model("tiny");
  const Shape shape{.seq = 8, .microbatch_size = 1};
  const auto names = [&](double ratio, Recompute recompute = {}) {
    Shape with = shape;
    with.strategy.recompute = recompute;
    std::vector<std::string> all;
    for (const OffloadedTensor& each : offloaded_tensors(config, with, Implementation::suite, 2, ratio))
      all.push_back(std::to_string(each.layer) + " " + to_string(each.unit) + " " +
                    to_string(each.tensor.which));
    return all;
  };
  EXPECT_EQ(names(1).size(), 2U * (6 + 5));
  EXPECT_EQ(names(1, {.layer = true}), (std::vector<std::string>{"0 attn norm input", "1 attn norm input"}));
  EXPECT_EQ(names(0.5, {.layer = true}), std::vector<std::string>{"0 attn norm input"});
  const std::vector<std::string> some = names(0.5);
  EXPECT_EQ(some.front(), "0 attn norm input");
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end(),
                             [](const std::string& a, const std::string& b) { return a[0] < b[0]; }));
  for (const std::string& name : names(1, {.mlp = true, .activation = true}))
    EXPECT_FALSE(name.ends_with("activation")) << name;
}

}  // namespace
}  // namespace stp
