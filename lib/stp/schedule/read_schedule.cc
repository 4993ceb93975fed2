#include "stp/schedule/read_schedule.h"

#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"
#include "stp/schedule/csv.h"
#include "stp/schedule/validate.h"

namespace stp {
namespace {

PlaceOfAction places_in(const std::string& text, const std::string& file, const Schedule& schedule) {
  if (file.ends_with(".csv")) return places_in_csv(text, schedule.placement);
  if (file.ends_with(".txt"))
    return [lines_before = text.starts_with('#') ? 2 : 1](int rank, size_t block, const Action& action) {
      return "line " + std::to_string(rank + lines_before) + " (rank " + std::to_string(rank) + "), block " +
             std::to_string(block) + ", " + to_string(action);
    };
  return [](int rank, size_t block, const Action& action) {
    return "ranks[" + std::to_string(rank) + "][" + std::to_string(block) + "], " + to_string(action);
  };
}

}  // namespace

bool is_schedule_file(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".csv") || path.ends_with(".txt");
}

Schedule read_schedule(const std::string& text, const std::string& file) {
  if (file.ends_with(".csv")) return schedule_from_csv(text, file);
  if (file.ends_with(".txt")) return schedule_from_text(text, file);
  return schedule_from_json(parse_json(text, file), file);
}

Schedule read_schedule_file(const std::string& path) {
  const std::string text = read_text_file(path);
  if (!is_schedule_file(path))
    throw InputError(path, "", "has no ending of a schedule file",
                     "let its name end in .json, .csv (PyTorch's) or .txt (as `stp schedule` prints it)");
  Schedule schedule = read_schedule(text, path);
  try {
    validate(schedule, places_in(text, path, schedule));
  } catch (const InputError& error) {
    throw error.in_file(path);
  }
  return schedule;
}

}  // namespace stp
