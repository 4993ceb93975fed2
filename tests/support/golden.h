// The orders of tests/golden.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/schedule/read_schedule.h"
#include "stp/schedule/validate.h"

namespace stp {

struct Golden {
  std::string file;  // without its ending
  nlohmann::json data;
  Schedule schedule;
};

/// A file's order, its letters ours. In the released code of vocabulary parallelism S0.i is the gradients of
/// microbatch i − 1 and S of i, one after the other, in the interlaced pipeline S and the gradients of i.
inline Schedule read_golden(nlohmann::json data, const std::string& path) {
  if (!data.contains("peak_microbatches")) return read_schedule_file(path);
  const std::string name = data["schedule"], gradients = name == "vocab-2" ? "U0." : "T0.";
  const int m = data["m"], behind = name == "interlaced" ? 0 : 1;
  for (const char* more : {"note", "peak_microbatches"}) data.erase(more);
  for (nlohmann::json& rank : data["ranks"]) {
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
  Schedule schedule = schedule_from_json(data, path);
  validate(schedule);
  return schedule;
}

/// Of files whose names begin with `prefix`, in the order of the names.
inline std::vector<Golden> golden_orders(const std::string& prefix = "") {
  std::vector<Golden> orders;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/tests/golden")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".json" && path.stem().string().starts_with(prefix))
      orders.push_back({path.stem(), read_json_file(path), read_golden(read_json_file(path), path)});
  }
  std::ranges::sort(orders, {}, &Golden::file);
  return orders;
}

}  // namespace stp
