#include "same_everywhere.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace stp {
namespace {

using nlohmann::json;

json digest(uintmax_t size, std::string_view bytes) { return {size, std::hash<std::string_view>{}(bytes)}; }

}  // namespace

json same_everywhere(const Scenario& scenario, const DeviceOptions& devices) {
  const auto word = [](bool given) { return given ? "given" : "left out"; };
  const CheckpointOptions& files = devices.checkpoints;
  json found = {{"scenario", scenario.as_run()},
                {"run.text", json::object()},
                // These change which calls there are, or with whom.
                {"flags",
                 {{"--backend", devices.backend},
                  {"--nccl", devices.nccl.empty() ? word(false) : joined(devices.nccl)},
                  {"--save", word(!files.save.empty())},
                  {"--every", std::to_string(files.every)},
                  {"--time-kernels", word(devices.time_kernels)}}}};
  for (const Experiment& experiment : scenario.experiments)
    if (experiment.run && !experiment.run->text.empty()) {
      const std::string text = read_text(*experiment.run, scenario.file);
      found["run.text"][experiment.run->text] = digest(text.size(), text);
    }
  return found;
}

std::string difference_between(const std::vector<std::string>& all, const std::string& scenario_file) {
  json first;
  for (size_t i = 0; i < all.size(); ++i) {
    const json each = json::parse(all[i]);
    if (each.contains("problem")) return each["problem"];
    if (i == 0) first = each;
    const auto differs = [&](const char* key) { return each[key] != first[key]; };
    const std::string process = "process " + std::to_string(i);
    if (differs("scenario"))
      return scenario_file + ": " + process +
             " reads another scenario there than process 0; make the files the same on all nodes";
    if (differs("run.text"))
      return scenario_file + ": run.text: " + process +
             " reads another text there than process 0; make the files the same on all nodes";
    for (const auto& [flag, value] : first["flags"].items())
      if (const json& other = each["flags"][flag]; other != value)
        return flag + ": is " + value.get<std::string>() + " in process 0, and " + other.get<std::string>() +
               " in " + process + "; start all processes with the same flags";
  }
  return "";
}

}  // namespace stp
