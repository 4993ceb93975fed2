// Hardware profiles: what is read, and what is refused.
#include "stp/cluster/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "stp/base/json_input.h"
#include "stp/cluster/profile_part.h"
#include "support/refusal.h"

namespace stp {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using nlohmann::json;

constexpr const char* kA800 = STP_SOURCE_DIR "/profiles/a800.json";

class Profile : public testing::Test {
 protected:
  HardwareProfile read() { return read_profile(json_, path_); }
  std::string refusal() {
    return stp::refusal([&] { read(); });
  }
  // Expects that the profile, spoilt at `pointer`, is refused with the file and `field`, and restores it.
  void refuses(const std::string& pointer, const json& value, const std::string& field,
               const std::string& why) {
    const json good = json_;
    json_[json::json_pointer(pointer)] = value;
    EXPECT_THAT(refusal(), AllOf(StartsWith(path_ + ": " + field + ": "), HasSubstr(why)))
        << pointer << " = " << value;
    json_ = good;
  }
  void refuses_without(const std::string& key, const std::string& inner) {
    const json good = json_;
    (inner.empty() ? json_ : json_.at(key)).erase(inner.empty() ? key : inner);
    EXPECT_THAT(refusal(), AllOf(StartsWith(path_ + ": " + key + (inner.empty() ? "" : "." + inner) + ": "),
                                 HasSubstr("is missing; add it")));
    json_ = good;
  }

  const std::string path_ = "spoilt.json";
  json json_ = read_json_file(kA800);
};

TEST_F(Profile, OfTheA800IsReadByItsPath) {
  const HardwareProfile a800 = read_profile(kA800);
  EXPECT_EQ(a800.accelerator, "NVIDIA A800-SXM4-80GB");
  EXPECT_EQ(a800.gpus_per_node, 8);
  EXPECT_EQ(a800.sms, 108);
}

// Distinct values show a field read in place of another.
TEST_F(Profile, HasEachNumberOfItsFileTimesItsUnit) {
  struct Field {
    const char* key;
    std::function<double(const HardwareProfile&)> read;
    double unit = 1;
  };
  using P = HardwareProfile;
  const Field fields[] = {
      {"peak_tflops", &P::peak_flops, 1e12},
      {"gemm_efficiency", &P::gemm_efficiency},
      {"gemm_overhead_k", &P::gemm_overhead_k},
      {"attention_forward_efficiency", &P::attention_forward_efficiency},
      {"attention_backward_efficiency", &P::attention_backward_efficiency},
      {"memory_gb_per_s", &P::memory_bytes_per_s, 1e9},
      {"memory_gb", &P::memory_bytes, 1e9},
      {"kernel_overhead_us", &P::kernel_overhead_s, 1e-6},
      {"elementwise_factor", &P::elementwise_factor},
      {"all_reduce_latency_us", &P::all_reduce_latency_s, 1e-6},
      {"all_reduce_hop_latency_us", &P::all_reduce_hop_latency_s, 1e-6},
      {"all_reduce_bus_gb_per_s", &P::all_reduce_bus_bytes_per_s, 1e9},
      {"p2p_within_node_latency_us", [](const P& p) { return p.within_node.latency_s; }, 1e-6},
      {"p2p_within_node_gb_per_s", [](const P& p) { return p.within_node.bytes_per_s; }, 1e9},
      {"p2p_between_nodes_latency_us", [](const P& p) { return p.between_nodes.latency_s; }, 1e-6},
      {"p2p_between_nodes_gb_per_s", [](const P& p) { return p.between_nodes.bytes_per_s; }, 1e9},
      {"contention_compute", &P::contention_compute},
      {"contention_all_reduce", &P::contention_all_reduce},
      {"host_to_device_gb_per_s", &P::host_to_device_bytes_per_s, 1e9},
      {"device_to_host_gb_per_s", &P::device_to_host_bytes_per_s, 1e9}};
  json_["shared_processors"] = {{"source", "a test"}, {"rates", {1}}};  // any number may be a processor's
  double next = 0.25;
  for (const Field& field : fields) json_[field.key] = {{"value", next += 1.0 / 64}, {"source", "a test"}};
  const HardwareProfile profile = read();
  for (const Field& field : fields)
    EXPECT_DOUBLE_EQ(field.read(profile), json_[field.key]["value"].get<double>() * field.unit) << field.key;
}

TEST(Profiles, OfTheSuiteAreReadAndOnlyThreeAreFitted) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/profiles")) {
    const HardwareProfile profile = read_profile(entry.path());
    EXPECT_EQ(profile.name, entry.path().stem());
    const bool of_the_paper = profile.name == "a800" || profile.name == "h20";
    EXPECT_EQ(profile.fitted.empty(), !of_the_paper && profile.name != "h100") << profile.name;
    EXPECT_LE(profile.fitted.size(), 9U);
    // A larger message never takes less time, whichever the group.
    for (int ranks = 2; ranks <= profile.gpus_per_node; ++ranks)
      for (double bytes = 1; bytes < 1e11; bytes *= 1.3)
        EXPECT_LE(all_reduce_seconds(profile, bytes, ranks), all_reduce_seconds(profile, bytes * 1.3, ranks))
            << profile.name;
    ++read;
  }
  EXPECT_GE(read, 5);
}

// nvidia-smi's MiB are powers of two, a profile's GB of ten.
TEST(Profiles, HaveTheirMemoryInDecimalGigabytes) {
  int known = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/profiles")) {
    const json memory = read_json_file(entry.path()).at("memory_gb");
    std::string source = memory.at("source");
    std::erase(source, ',');
    if (source.find(" MiB") == std::string::npos) continue;
    EXPECT_NEAR(memory.at("value").get<double>(), std::stod(source) * (1 << 20) / 1e9, 0.06) << entry.path();
    ++known;
  }
  EXPECT_GE(known, 7);
}

TEST_F(Profile, ListsExactlyItsFittedValuesAndWhatTheyWereFittedTo) {
  std::vector<std::string> fitted;
  for (const auto& [key, field] : json_.items())
    if (field.is_object() && field.value("fitted", false)) fitted.push_back(key);
  ASSERT_FALSE(fitted.empty());
  const HardwareProfile profile = read();
  EXPECT_THAT(profile.fitted, testing::UnorderedElementsAreArray(fitted));
  EXPECT_EQ(profile.fitted_to, json_.at("fitted_to").get<std::string>());
  EXPECT_NE(profile.fitted_to, "");
}

TEST_F(Profile, SaysHowSureAValueIsInFourWords) {
  for (const char* word : {"measured", "documented", "inferred", "unknown"}) {
    json_["sms"]["sure"] = word;
    EXPECT_NO_THROW(read());
  }
  json_["sms"]["sure"] = "certainly";
  EXPECT_THROW(read(), InputError);
}

TEST_F(Profile, KnowsAssumedValuesByTheirSourceAndHowFarTheyMayBeOff) {
  const auto from = [&](const char* key, double value, const char* source) {
    json_[key] = {{"value", value}, {"source", source}};
    for (const UncertainValue& one : read().uncertain)
      if (one.name == key) return std::pair{one.from, one.to};
    return std::pair{0.0, 0.0};
  };
  using Ends = std::pair<double, double>;
  const Ends none{0, 0};
  EXPECT_EQ(from("memory_gb_per_s", 1000, "Assumed."), Ends(800, 1250));
  EXPECT_EQ(from("memory_gb_per_s", 1000, "as on A100"), Ends(800, 1250));
  EXPECT_EQ(from("memory_gb_per_s", 1000, "carried over from A800, where it was fitted"), Ends(800, 1250));
  EXPECT_EQ(from("memory_gb_per_s", 1000, "the same as on A100"), none);
  EXPECT_EQ(from("memory_gb_per_s", 1000, "unassumed"), none);
  EXPECT_EQ(from("contention_compute", 0.9, "assumed"), Ends(0.72, 1));
  EXPECT_EQ(from("kernel_overhead_us", 3, "assumed"), Ends(1.5, 6));
  EXPECT_EQ(from("elementwise_factor", 2, "as fitted on A800"), Ends(1, 4));
  EXPECT_EQ(from("memory_gb", 80, "as on A100"), none);
  json_["adapters_per_node"] = {{"value", 3}, {"source", "assumed"}};
  const HardwareProfile profile = read();
  EXPECT_THAT(profile.assumed,
              testing::IsSupersetOf({"memory_gb", "adapters_per_node", "contention_compute"}));
  for (const UncertainValue& one : profile.uncertain) {
    if (one.name != "adapters_per_node") continue;
    EXPECT_EQ(Ends(one.from, one.to), Ends(2, 6));  // whole numbers
  }
}

TEST_F(Profile, IsRefusedWithoutAnyOfItsFields) {
  ASSERT_EQ(refusal(), "");
  const std::set<std::string> optional{"host_launch_us", "adapters_per_node", "attention_tile_overhead",
                                       "fixed_memory_gb"};
  for (const auto& [key, field] : json::object_t(json_))
    if (key != "fitted_to" && !optional.contains(key)) refuses_without(key, "");
}

TEST_F(Profile, IsRefusedWhereAValueLacksValueOrSource) {
  int checked = 0;
  for (const auto& [key, field] : json::object_t(json_)) {
    if (!field.is_object()) continue;
    ++checked;
    refuses_without(key, "value");
    refuses_without(key, "source");
    refuses("/" + key + "/source", "", key + ".source", "is empty");
    refuses("/" + key + "/source", 7, key + ".source", "must be a string");
    refuses("/" + key + "/value", "fast", key + ".value", "number, not a string");
    refuses("/" + key + "/value", -1, key + ".value", "out of range");
    refuses("/" + key, 7, key, key == "sms" ? R"(write {"value": 7, "source": "…"})" : "must be an object");
  }
  EXPECT_EQ(checked, 26);
}

TEST_F(Profile, IsRefusedWhereAFittedValueLiesOutsideItsRange) {
  const json range = json_.at("gemm_efficiency").at("range");
  const double from = range.at("from"), to = range.at("to");
  refuses("/gemm_efficiency/value", from - 0.01, "gemm_efficiency.value", "outside its physical range");
  refuses("/gemm_efficiency/value", to + 0.01, "gemm_efficiency.value", "outside its physical range");
  refuses("/all_reduce_bus_gb_per_s/value", 161, "all_reduce_bus_gb_per_s.value",
          "outside its physical range");
  json_["gemm_efficiency"]["value"] = from;  // its ends belong to the range
  EXPECT_EQ(refusal(), "");
  json_["gemm_efficiency"]["value"] = to;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Profile, IsRefusedWhereAFittedValueGivesNoRangeWithItsReason) {
  refuses_without("gemm_efficiency", "range");
  for (const std::string part : {"from", "to", "source"}) {
    const json good = json_;
    json_["gemm_efficiency"]["range"].erase(part);
    EXPECT_THAT(refusal(), StartsWith(path_ + ": gemm_efficiency.range." + part + ": is missing"));
    json_ = good;
  }
  refuses("/gemm_efficiency/range/upto", 1, "gemm_efficiency.range.upto", "not a known field");
  refuses("/gemm_efficiency/range/to", 1.1, "gemm_efficiency.range.to", "out of range");
}

TEST_F(Profile, IsRefusedForKeysThatItDoesNotKnow) {
  refuses("/peak_tflop", json{{"value", 312}, {"source", "x"}}, "peak_tflop",
          "did you mean \"peak_tflops\"?");
  refuses("/peak_tflops/unit", "TFLOP/s", "peak_tflops.unit", "not a known field");
}

TEST_F(Profile, IsRefusedForSharesAboveOneAndRatesOfZero) {
  for (const char* key : {"attention_forward_efficiency", "attention_backward_efficiency",
                          "contention_compute", "contention_all_reduce"}) {
    refuses(std::string("/") + key + "/value", 1.01, std::string(key) + ".value", "out of range");
    refuses(std::string("/") + key + "/value", 0, std::string(key) + ".value", "out of range");
  }
  for (const char* key :
       {"peak_tflops", "memory_gb_per_s", "p2p_within_node_gb_per_s", "p2p_between_nodes_gb_per_s"})
    refuses(std::string("/") + key + "/value", 0, std::string(key) + ".value", "out of range");
}

TEST_F(Profile, IsRefusedForNumbersOfAnotherUnit) {
  refuses("/peak_tflops/value", 1.2, "peak_tflops", "is 1.2 TFLOP/s, which no GPU has");
  for (const double capacity : {80e3, 0.08})
    refuses("/memory_gb/value", capacity, "memory_gb", "write it in GB");
}

TEST_F(Profile, IsRefusedForFractionsOfGpusAndOfMultiprocessors) {
  refuses("/gpus_per_node/value", 8.5, "gpus_per_node.value", "whole number");
  refuses("/sms/value", 107.9, "sms.value", "whole number");
}

TEST_F(Profile, ReadsMeasuredAllReducesByGroupSize) {
  EXPECT_TRUE(read().all_reduce_measured.empty());
  json_["all_reduce_measured"] = json::parse(R"([
      {"ranks": 4, "source": "a test", "sizes": [{"mib": 2, "bus_gb_per_s": 50}]},
      {"ranks": 8, "source": "a test", "sizes": [{"mib": 1, "bus_gb_per_s": 10}, {"mib": 4, "bus_gb_per_s": 20}]}])");
  const HardwareProfile profile = read();
  constexpr double mebi = 1024 * 1024;
  // The bus bandwidth that went in comes out at the sizes measured, and beyond the last.
  const auto bus = [&](double mib, int ranks) {
    return mib * mebi / all_reduce_seconds(profile, mib * mebi, ranks) * 2 * (ranks - 1) / ranks / 1e9;
  };
  EXPECT_DOUBLE_EQ(bus(2, 4), 50);
  EXPECT_DOUBLE_EQ(bus(1, 8), 10);
  EXPECT_DOUBLE_EQ(bus(4, 8), 20);
  EXPECT_DOUBLE_EQ(bus(64, 8), 20);
  // Between two sizes, and below the first, the time is linear in bytes.
  const auto seconds = [&](double mib) { return all_reduce_seconds(profile, mib * mebi, 8); };
  EXPECT_NEAR(seconds(2), seconds(1) + (seconds(4) - seconds(1)) / 3, 1e-12);
  const double latency = profile.all_reduce_latency_s + 14 * profile.all_reduce_hop_latency_s;
  EXPECT_NEAR(seconds(0), latency, 1e-12);
  EXPECT_NEAR(seconds(0.5), (latency + seconds(1)) / 2, 1e-12);
  for (double mib = 0; mib < 8; mib += 0.25) EXPECT_GT(seconds(mib + 0.25), seconds(mib)) << mib;
  // Other group sizes have the ring's formula.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e6, 2), profile.all_reduce_latency_s +
                                                            2 * profile.all_reduce_hop_latency_s +
                                                            1e6 / profile.all_reduce_bus_bytes_per_s);
}

TEST_F(Profile, IsRefusedForMeasuredAllReducesThatMakeNoSense) {
  json_["all_reduce_measured"] = json::parse(
      R"([{"ranks": 8, "source": "a test", "sizes": [{"mib": 1, "bus_gb_per_s": 10}, {"mib": 4, "bus_gb_per_s": 20}]}])");
  ASSERT_EQ(refusal(), "");
  const std::string at = "/all_reduce_measured/0", field = "all_reduce_measured[0]";
  refuses(at + "/ranks", 1, field + ".ranks", "out of range");
  refuses(at + "/ranks", 9, field + ".ranks", "a node has 8 GPUs; remove this group");
  refuses(at + "/source", "", field + ".source", "is empty");
  refuses(at + "/sizes", json::array(), field + ".sizes", "is empty");
  refuses(at + "/sizes/1/mib", 1, field + ".sizes[1].mib", "not larger than the size before");
  refuses(at + "/sizes/1/bus_gb_per_s", 41, field + ".sizes[1].bus_gb_per_s", "larger message the faster");
  refuses(at + "/sizes/1/bus_gb_per_s", 0, field + ".sizes[1].bus_gb_per_s", "out of range");
  refuses(at + "/sizes/0/time", 1, field + ".sizes[0].time", "not a known field");
  refuses(at + "/latency", 1, field + ".latency", "not a known field");
  refuses("/all_reduce_measured/1", json_["all_reduce_measured"][0], "all_reduce_measured[1].ranks",
          "is given twice");
}

TEST_F(Profile, ReadsMeasuredGemmsAndSharedProcessors) {
  EXPECT_TRUE(read().gemm_measured.empty());
  EXPECT_EQ(read().shared.count(), 0);
  json_["gemm_measured"] = json::parse(R"({"source": "a test", "shapes": [
      {"product": "forward", "m": 64, "n": 32, "k": 16, "us": 5},
      {"product": "weight_gradient", "m": 32, "n": 16, "k": 64, "us": 7}]})");
  json_["shared_processors"] = json::parse(R"({"source": "a test", "rates": [1, 0.9]})");
  const HardwareProfile profile = read();
  ASSERT_EQ(profile.gemm_measured.size(), 2U);
  EXPECT_EQ(profile.gemm_measured[1].gemm.kind, GemmKind::weight_gradient);
  EXPECT_EQ(profile.gemm_measured[1].gemm.k, 64);
  EXPECT_DOUBLE_EQ(profile.gemm_measured[1].seconds, 7e-6);
  EXPECT_EQ(profile.shared.count(), 2);

  refuses("/gemm_measured/source", "", "gemm_measured.source", "is empty");
  refuses("/gemm_measured/shapes", json::array(), "gemm_measured.shapes", "is empty");
  refuses("/gemm_measured/shapes/0/product", "backward", "gemm_measured.shapes[0].product", "is not a GEMM");
  refuses("/gemm_measured/shapes/0/m", 0, "gemm_measured.shapes[0].m", "out of range");
  refuses("/gemm_measured/shapes/1/us", 0, "gemm_measured.shapes[1].us", "out of range");
  refuses("/gemm_measured/shapes/1/ms", 1, "gemm_measured.shapes[1].ms", "not a known field");
  refuses("/shared_processors/rates", json::array(), "shared_processors.rates", "must begin with 1");
  refuses("/shared_processors/rates/0", 0.9, "shared_processors.rates", "must begin with 1");
  refuses("/shared_processors/rates/1", 0, "shared_processors.rates[1]", "out of range");
  refuses("/shared_processors/source", "", "shared_processors.source", "is empty");
}

TEST(AllReduceSeconds, IsARingsLatencyPlusBytesOverBusBandwidthAsNcclTestsDefineIt) {
  HardwareProfile profile{};
  profile.all_reduce_latency_s = 3e-6;
  profile.all_reduce_hop_latency_s = 0.5e-6;
  profile.all_reduce_bus_bytes_per_s = 100e9;
  EXPECT_EQ(all_reduce_seconds(profile, 1e9, 1), 0);  // no other rank
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 0, 8), 10e-6);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e9, 2), 4e-6 + 1e9 * 1.0 / 100e9);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e9, 4), 6e-6 + 1e9 * 1.5 / 100e9);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(profile, 1e9, 8), 10e-6 + 1e9 * 1.75 / 100e9);
  // busbw = algbw · 2(n − 1)/n, algbw = bytes / seconds: the bus bandwidth for any n, but for the latency.
  profile.all_reduce_latency_s = profile.all_reduce_hop_latency_s = 0;
  for (const int n : {2, 3, 4, 8, 16})
    EXPECT_NEAR(5e8 / all_reduce_seconds(profile, 5e8, n) * 2 * (n - 1) / n, 100e9, 1) << n;
}

TEST(TransferSeconds, IsLatencyPlusBytesOverBandwidth) {
  EXPECT_DOUBLE_EQ(transfer_seconds({2e-6, 25e9}, 50e6), 2e-6 + 2e-3);
  EXPECT_DOUBLE_EQ(transfer_seconds({2e-6, 25e9}, 0), 2e-6);
}

// The groups of a machine's properties: each value is in exactly one of them.

using nlohmann::json;

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
