#include "same_everywhere.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "stp/base/data.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json digest(uintmax_t size, const std::string& bytes) { return {size, hash_of(bytes)}; }

// The ends of a file of tensors tell updates of one model apart: headers, and values. The whole is too large.
json digest_of_ends(const fs::path& path) {
  constexpr uintmax_t kEnd = 1 << 16;
  std::error_code ignored;
  const uintmax_t size = fs::file_size(path, ignored);
  std::ifstream file(path, std::ios::binary);
  std::string ends(kEnd, '\0');
  file.read(ends.data(), kEnd);
  ends.resize(static_cast<size_t>(file.gcount()));
  if (size > kEnd) {
    std::string last(kEnd, '\0');
    file.seekg(static_cast<std::streamoff>(size - kEnd));
    file.read(last.data(), kEnd);
    ends += last;
  }
  return digest(size, ends);
}

json digests_of_checkpoint(const std::string& folder) {
  json files = json::object();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "training.json" || name.find(".safetensors") != std::string::npos)
      files[name] = digest_of_ends(entry.path());
  }
  return files;
}

}  // namespace

json same_everywhere(const Scenario& scenario, const DeviceOptions& devices) {
  const auto word = [](bool given) { return given ? "given" : "left out"; };
  const auto& [save, resume, every] = devices.checkpoints;
  json found = {{"scenario", scenario.as_run()},
                {"run.text", json::object()},
                {"--resume", resume.empty() ? json() : digests_of_checkpoint(resume)},
                {"resumed", resume.empty() ? "none" : resume},
                // These change which calls there are, or with whom.
                {"flags",
                 {{"--backend", devices.backend},
                  {"--nccl", devices.nccl.empty() ? word(false) : joined(devices.nccl)},
                  {"--save", word(!save.empty())},
                  {"--every", std::to_string(every)},
                  {"--time-kernels", word(devices.time_kernels)}}}};
  for (const Experiment& experiment : scenario.experiments)
    if (experiment.run && !experiment.run->text.empty() &&
        !found["run.text"].contains(experiment.run->text)) {
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
    if (differs("--resume"))
      return "--resume: " + process + " has another checkpoint (" + each["resumed"].get<std::string>() +
             ") than process 0 (" + first["resumed"].get<std::string>() +
             "); make the folders the same on all nodes";
  }
  return "";
}

}  // namespace stp
