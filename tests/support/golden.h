// The orders of tests/golden.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/schedule/read_schedule.h"

namespace stp {

struct Golden {
  std::string file;  // without its ending
  nlohmann::json data;
  Schedule schedule;
};

/// Of files whose names begin with `prefix`, in the order of the names.
inline std::vector<Golden> golden_orders(const std::string& prefix = "") {
  std::vector<Golden> orders;
  for (const auto& entry : std::filesystem::directory_iterator(STP_SOURCE_DIR "/tests/golden")) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".json" && path.stem().string().starts_with(prefix))
      orders.push_back({path.stem(), read_json_file(path), read_schedule_file(path)});
  }
  std::ranges::sort(orders, {}, &Golden::file);
  return orders;
}

}  // namespace stp
