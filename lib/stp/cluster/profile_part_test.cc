// The groups of a machine's properties: each value is in exactly one of them.
#include "stp/cluster/profile_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

class ProfileParts : public testing::Test {
 protected:
  // The profile with one value changed.
  HardwareProfile changed(const std::string& key) {
    json content = json_;
    if (key == "all_reduce_measured") {
      content[key][0]["ranks"] = 4;
    } else if (key == "attention_cudnn") {
      content[key]["heads"] = 32;
    } else {
      json& value = content[key]["value"];
      if (content[key].contains("range"))
        value = content[key]["range"]["to"];
      else if (value.is_number_integer())
        value = value.get<int>() + 1;
      else
        value = value.get<double>() * 0.75;
    }
    return read_profile(content, "changed.json");
  }
  static std::vector<std::string> differing(const HardwareProfile& a, const HardwareProfile& b) {
    std::vector<std::string> parts;
    for (const ProfilePart part : kProfileParts)
      if (!same_part(a, b, part)) parts.push_back(to_string(part));
    return parts;
  }

  const json json_ = read_json_file(STP_SOURCE_DIR "/profiles/h100.json");
  const HardwareProfile h100_ = read_profile(json_, "h100.json");
};

TEST_F(ProfileParts, HoldEveryValueOnce) {
  std::map<std::string, std::vector<std::string>> keys;
  for (const auto& [key, field] : json_.items()) {
    if (!field.is_object() && !field.is_array()) continue;
    const HardwareProfile other = changed(key);
    const auto parts = differing(h100_, other);
    if (key == "memory_gb" || key == "fixed_memory_gb") {
      EXPECT_THAT(parts, IsEmpty());  // capacity takes no time
      continue;
    }
    ASSERT_EQ(parts.size(), 1) << key;
    keys[parts[0]].push_back(key);
    // Taken over, nothing differs any more; another part changes nothing.
    for (const ProfilePart part : kProfileParts) {
      HardwareProfile mixed = h100_;
      take_part(mixed, other, part);
      EXPECT_EQ(differing(mixed, other).empty(), to_string(part) == parts[0]) << key;
      EXPECT_EQ(differing(mixed, h100_).empty(), to_string(part) != parts[0]) << key;
    }
  }
  EXPECT_EQ(keys.size(), kProfileParts.size());
  EXPECT_THAT(keys["contention"],
              ElementsAre("contention_all_reduce", "contention_compute", "receive_sms", "reduction_sms"));
  EXPECT_THAT(keys["launches"],
              ElementsAre("batched_transfer_us", "host_launch_us", "kernel_overhead_us", "step_overhead_us"));
}

TEST_F(ProfileParts, LeaveNamesAndCapacityAlone) {
  HardwareProfile mixed = h100_;
  const HardwareProfile h20 = read_profile(STP_SOURCE_DIR "/profiles/h20.json");
  for (const ProfilePart part : kProfileParts) take_part(mixed, h20, part);
  EXPECT_THAT(differing(mixed, h20), IsEmpty());
  EXPECT_EQ(mixed.name, "h100");
  EXPECT_EQ(mixed.memory_bytes, h100_.memory_bytes);
  EXPECT_THAT(differing(h100_, h20), ElementsAre("compute", "memory", "all_reduce", "contention"));
}

}  // namespace
}  // namespace stp
