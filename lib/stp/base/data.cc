#include "stp/base/data.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "stp/base/json_input.h"

namespace stp {
namespace fs = std::filesystem;
namespace {

fs::path data_root() {
  if (const char* set = std::getenv("STP_DATA_DIR"); set != nullptr && *set != '\0') return set;
  std::error_code ignored;
  const fs::path installed = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "../share/stp";
  if (fs::exists(installed / "profiles", ignored)) return installed.lexically_normal();
  return STP_SOURCE_DIR;
}

}  // namespace

std::string data_path(const std::string& relative) { return (data_root() / relative).string(); }

std::string find_data_file(const std::string& word, const std::string& folder, const std::string& from,
                           const std::string& field) {
  std::error_code ignored;
  if (word.ends_with(".json")) {
    const fs::path path = fs::path(word).is_absolute() ? fs::path(word) : fs::path(from).parent_path() / word;
    if (fs::exists(path, ignored)) return path.string();
    throw InputError(from, field, "there is no file " + path.string(), "check the path");
  }
  const fs::path root = data_path(folder);
  if (word.find('/') == std::string::npos && fs::exists(root / (word + ".json"), ignored))
    return (root / (word + ".json")).string();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root, ignored))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  const std::string guess = nearest(word, names);
  throw InputError(from, field, "there is no \"" + word + "\" in " + root.string(),
                   (guess.empty() ? "" : "did you mean " + guess + "? ") +
                       "give a path ending in .json or one of " + joined(names));
}

}  // namespace stp
