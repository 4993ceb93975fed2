#include "stp/schedule/read_schedule.h"

#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"
#include "stp/schedule/csv.h"

namespace stp {

bool is_schedule_file(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".csv") || path.ends_with(".txt");
}

Schedule read_schedule(const std::string& text, const std::string& file) {
  if (file.ends_with(".csv")) return schedule_from_csv(text, file);
  if (file.ends_with(".txt")) return schedule_from_text(text, file);
  return schedule_from_json(parse_json(text, file), file);
}

Schedule read_schedule_file(const std::string& path) {
  const std::string text = read_file(path);
  if (!is_schedule_file(path))
    throw InputError(path, "", "has no ending of a schedule file",
                     "let its name end in .json, .csv (PyTorch's) or .txt (as `stp schedule` prints it)");
  return read_schedule(text, path);
}

}  // namespace stp
