#include "stp/base/data.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace fs = std::filesystem;
namespace {

fs::path data_root() {
  if (const char* set = std::getenv("STP_DATA_DIR"); set != nullptr && *set != '\0') return set;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path() / "../share/stp";
  if (fs::exists(installed / "profiles", ignored)) return installed.lexically_normal();
  // The source tree around the build, which may have moved since.
  for (fs::path tree = program.parent_path(); tree.has_relative_path(); tree = tree.parent_path())
    if (fs::exists(tree / "profiles", ignored) && fs::exists(tree / "scenarios", ignored)) return tree;
  return STP_SOURCE_DIR;
}

}  // namespace

std::string data_path(const std::string& relative) { return (data_root() / relative).string(); }

std::vector<std::string> data_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(data_path(folder), missing))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  if (missing)
    throw InputError(data_path(folder), "STP_DATA_DIR", "the suite's " + folder + " are not there",
                     "set it to the source tree, or to share/stp of an installation");
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of_user(const std::string& path) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored).lexically_normal();
  return absolute.empty() ? path : absolute.string();
}

std::string path_in(const std::string& from, const std::string& path) {
  return fs::path(path).is_absolute() ? path : (fs::path(from).parent_path() / path).string();
}

bool is_path(const std::string& word) {
  return word.ends_with(".json") || word.find('/') != std::string::npos;
}

std::string find_data_file(const std::string& word, const std::string& folder, const std::string& from,
                           const std::string& field) {
  std::error_code ignored;
  if (word == "-" || fs::is_character_file(word, ignored) || fs::is_fifo(word, ignored)) return word;
  if (word.ends_with(".json")) {
    std::string path = path_in(from, word);
    if (fs::exists(path, ignored)) return path;
    const bool of_suite = fs::exists(fs::path(data_path(folder)) / fs::path(word).filename(), ignored);
    throw InputError(
        from, field, "there is no file " + path_of_user(path),
        "check the path" +
            (of_suite ? ", or write " + fs::path(word).stem().string() + " for the suite's" : ""));
  }
  const std::vector<std::string> names = data_names(folder);
  const fs::path root = data_path(folder);
  if (word.find('/') == std::string::npos && fs::exists(root / (word + ".json"), ignored))
    return (root / (word + ".json")).string();
  const bool is_checkpoint = folder == "models" && fs::exists(path_in(from, word + "/config.json"), ignored);
  throw InputError(from, field, "there is no \"" + word + "\" in " + root.string(),
                   (is_checkpoint ? "./" + word + " names the folder; " : "") + did_you_mean(word, names) +
                       "give a path ending in .json, or a name such as " +
                       joined(nearest_few(word, names, 5)) + " (stp list " + folder + " shows all)");
}

void refuse_other_kind(const nlohmann::json& value, const std::string& file, const std::string& kind) {
  static constexpr struct {
    const char *kind, *field, *use;
  } kKinds[] = {
      {"a result record", "provenance",
       "name the scenario that it is of, or save its field \"scenario\" as a file"},
      {"a scenario", "schedules", "scenarios are for stp simulate, run, reproduce and trace"},
      {"a scenario", "configurations", "scenarios are for stp simulate, run, reproduce and trace"},
      {"a schedule", "ranks",
       R"(name the file in a scenario: "schedules": [{"file": "…"}]; or check it with stp validate)"},
      {"a hardware profile", "gpus_per_node",
       "name it with --set cluster=FILE, or as a scenario's `cluster`"},
      {"a model", "num_hidden_layers", "name it with --set model=FILE, or as a scenario's `model`"}};
  for (const auto& [found, field, use] : kKinds) {
    if (!value.is_object() || !value.contains(field)) continue;
    if (found == kind) return;
    throw InputError(file, field, std::string("makes this ") + found + ", not " + kind, use);
  }
}

std::string hash_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return std::to_string(hash);
}

}  // namespace stp
