#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "baselines/registry.h"
#include "commands.h"
#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile.h"
#include "stp/model/config.h"
#include "table.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Listing = std::vector<std::vector<std::string>>;  // a head, then by name

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : data_names(folder))
    files.emplace_back(data_path(folder + "/" + name + ".json"));
  return files;
}

Listing scenarios() {
  Listing rows{{"scenario", "for", "what it is"}};
  for (const fs::path& file : files_in("scenarios")) {
    const json scenario = read_json_file(file);
    rows.push_back({file.stem(), scenario.contains("run") ? "stp run" : "stp simulate",
                    scenario.value("title", std::string())});
  }
  return rows;
}

Listing models() {
  Listing rows{{"model", "parameters, billion", "layers", "hidden", "vision layers"}};
  for (const fs::path& file : files_in("models")) {
    const ModelConfig model = read_model(file);
    rows.push_back({file.stem(), fixed(model.parameters() / 1e9, 2), std::to_string(model.layers),
                    std::to_string(model.hidden), std::to_string(model.vision.layers)});
  }
  return rows;
}

Listing profiles() {
  Listing rows{{"profile", "GPUs a node", "bf16, TFLOP/s", "memory, GB", "all-reduce, GB/s", "accelerator"}};
  for (const fs::path& file : files_in("profiles")) {
    const HardwareProfile profile = read_profile(file);
    rows.push_back({file.stem(), std::to_string(profile.gpus_per_node), fixed(profile.peak_flops / 1e12, 0),
                    gb_text(profile.memory_bytes), fixed(profile.all_reduce_bus_bytes_per_s / 1e9, 0),
                    profile.accelerator});
  }
  return rows;
}

Listing schedules() {
  Listing rows{{"schedule", "chunks", "range", "what it is"}};
  for (const Generator* generator : generators())
    rows.push_back(
        {generator->name, std::to_string(generator->chunks), generator->range, generator->summary});
  return rows;
}

}  // namespace

const std::vector<std::string>& listed_kinds() {
  static const std::vector<std::string> kinds{"scenarios", "models", "profiles", "schedules"};
  return kinds;
}

void list_command(const std::string& kind, bool names_only) {
  if (kind.empty()) {
    for (const std::string& each : listed_kinds()) std::printf("%s\n", each.c_str());
    return;
  }
  Listing rows = kind == "scenarios"  ? scenarios()
                 : kind == "models"   ? models()
                 : kind == "profiles" ? profiles()
                                      : schedules();
  if (names_only) {
    for (size_t i = 1; i < rows.size(); ++i) std::printf("%s\n", rows[i].front().c_str());
    return;
  }
  Table table(std::move(rows.front()));
  for (size_t i = 1; i < rows.size(); ++i) table.add(std::move(rows[i]));
  std::fputs(table.text().c_str(), stdout);
}

}  // namespace stp
