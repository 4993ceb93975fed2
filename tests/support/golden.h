// The orders of tests/golden.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/schedule/schedule.h"
#include "stp/schedule/validate.h"

namespace stp {

struct Golden {
  std::string file;     // with its p, m, …: "zb-v_p4_m8"
  nlohmann::json data;  // with what its file says of all
  Schedule schedule;
};

/// Makes the letters of `ranks` ours. In the released code of vocabulary parallelism S0.i is the gradients of
/// microbatch i − 1 and S of i, one after the other, in the interlaced pipeline S and the gradients of i.
inline void use_our_letters(nlohmann::json& ranks, const std::string& name, int m) {
  const std::string gradients = name == "vocab-2" ? "U0." : "T0.";
  const int behind = name == "interlaced" ? 0 : 1;
  for (nlohmann::json& rank : ranks) {
    nlohmann::json ours = nlohmann::json::array();
    for (const std::string pass : rank) {
      if (pass.starts_with("I")) {
        ours.push_back((pass[1] == 'F' ? "E" : "G") + pass.substr(2));
        continue;
      }
      if (!pass.starts_with("S")) {
        ours.push_back(pass);
        continue;
      }
      const int i = std::stoi(pass.substr(3));
      if (behind == 1 && i > 0) ours.push_back(gradients + std::to_string(i - 1));
      if (i < m) ours.push_back(pass);
      if (behind == 0) ours.push_back(gradients + std::to_string(i));
    }
    rank = std::move(ours);
  }
}

inline std::vector<std::string> passes_of(const std::string& rank) {
  std::istringstream passes(rank);
  return {std::istream_iterator<std::string>(passes), {}};
}

inline Schedule read_golden(const nlohmann::json& data, const std::string& name) {
  nlohmann::json order{{"pp", data["p"]}, {"microbatches", data["m"]}, {"chunks", data["v"]}};
  for (const char* same : {"schedule", "placement"}) order[same] = data[same];
  for (const std::string rank : data["ranks"]) order["ranks"].push_back(passes_of(rank));
  if (data.contains("peak_microbatches")) use_our_letters(order["ranks"], data["schedule"], data["m"]);
  Schedule schedule = schedule_from_json(order, name);
  validate(schedule);
  return schedule;
}

inline std::string golden_name(const std::string& schedule, const nlohmann::json& order) {
  std::string name = schedule;
  if (order.contains("limit"))
    name += "-limit" + order["limit"].dump() + (order.contains("generated_for") ? "s" : "u");
  name += "_p" + order["p"].dump() + "_m" + order["m"].dump();
  return order.contains("v") ? name + "_v" + order["v"].dump() : name;
}

/// Those whose names begin with `prefix`, in the order of the names.
inline std::vector<Golden> golden_orders(const std::string& prefix = "") {
  std::vector<Golden> orders;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/tests/golden")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".json") continue;
    const nlohmann::json file = read_json_file(path);
    for (const nlohmann::json& order : file["orders"]) {
      const std::string name = golden_name(path.stem(), order);
      if (!name.starts_with(prefix)) continue;
      nlohmann::json data = file;
      data.erase("orders");
      data.update(order);
      orders.push_back({name, data, read_golden(data, name)});
    }
  }
  std::ranges::sort(orders, {}, &Golden::file);
  return orders;
}

}  // namespace stp
