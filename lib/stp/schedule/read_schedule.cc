#include "stp/schedule/read_schedule.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/schedule/csv.h"
#include "stp/schedule/validate.h"

namespace stp {
namespace {

// ".json", ".csv" or ".txt": the file's ending, or what its first line says (of standard input, for example).
std::string format_of(const std::string& text, const std::string& path) {
  if (is_schedule_file(path)) return std::filesystem::path(path).extension();
  if (text.starts_with('{')) return ".json";
  const std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("# schedule")) return ".txt";
  if (line.find(',') != std::string::npos) return ".csv";
  throw InputError(path, "",
                   "is no schedule: it begins neither with { nor with # schedule nor with a line of CSV",
                   "write it as `stp schedule` prints it");
}

PlaceOfAction places_in(const std::string& text, const std::string& format, const Schedule& schedule) {
  if (format == ".csv") return places_in_csv(text, schedule.placement);
  if (format == ".txt")
    return [lines_before = text.starts_with('#') ? 2 : 1](int rank, size_t block, const Action& action) {
      return "line " + std::to_string(rank + lines_before) + " (rank " + std::to_string(rank) + ")" +
             in_block(block) + ", " + to_string(action);
    };
  return [](int rank, size_t block, const Action& action) {
    const std::string of_block = block == kNoBlock ? "" : "[" + std::to_string(block) + "]";
    return "ranks[" + std::to_string(rank) + "]" + of_block + ", " + to_string(action);
  };
}

}  // namespace

bool is_schedule_file(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".csv") || path.ends_with(".txt");
}

Schedule read_schedule(const std::string& text, const std::string& file) {
  const std::string format = format_of(text, file);
  if (format != ".json") check_utf8(text, file);
  if (format == ".csv") return schedule_from_csv(text, file);
  if (format == ".txt") return schedule_from_text(text, file);
  const nlohmann::json content = parse_json(text, file);
  refuse_other_kind(content, file, "a schedule");
  return schedule_from_json(content, file);
}

Schedule read_schedule_file(const std::string& path) {
  const std::string text = read_text_file(path);
  Schedule schedule = read_schedule(text, path);
  try {
    validate(schedule, places_in(text, format_of(text, path), schedule));
  } catch (const InputError& error) {
    throw error.in_file(path);
  }
  return schedule;
}

}  // namespace stp
