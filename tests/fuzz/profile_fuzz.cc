// Fuzz target of the reader of hardware profiles. An accepted one has the values of its file, and its times
// are finite.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "require.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile.h"

namespace {

using namespace stp;

void check_values(const HardwareProfile& profile, const nlohmann::json& content, const std::string& text) {
  require(profile.peak_flops == 1e12 * content.at("peak_tflops").at("value").get<double>(), "it has its peak",
          text);
  require(profile.gpus_per_node == content.at("gpus_per_node").at("value"), "it has its GPUs", text);
  for (const double bytes : {0.0, 1.0, 1e6, 1e10}) {
    for (const int ranks : {2, 3, 8}) {
      const double whole = all_reduce_seconds(profile, bytes, ranks),
                   half = half_all_reduce_seconds(profile, bytes, ranks);
      require(std::isfinite(whole) && whole >= 0 && std::isfinite(half) && half >= 0, "collectives end",
              text);
    }
    for (const LinkProfile* link : {&profile.within_node, &profile.between_nodes}) {
      const double seconds = transfer_seconds(*link, bytes);
      require(std::isfinite(seconds) && seconds >= 0, "transfers end", text);
    }
  }
  for (const UncertainValue& value : profile.uncertain)
    require(value.from <= value.to, "ranges are ordered", text);
}

}  // namespace

void stp::check(const std::string& text) {
  nlohmann::json content = parse_json(text, "fuzz.json");
  check_values(read_profile(content, "fuzz.json"), content, text);
  content["unknown"] = {{"value", 1}, {"source", "fuzz"}};
  require(refuses([&] { read_profile(content, "fuzz.json"); }), "an unknown field is refused", text);
}
