#include "finished_rows.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "stp/base/data.h"
#include "stp/base/json_input.h"
#include "stp/version.h"

namespace stp {
namespace {

using nlohmann::json;

// The version and the program's file, which a build changes though the commit stays.
std::string program() {
  const std::filesystem::path file = "/proc/self/exe";
  return STP_VERSION " " STP_GIT_REVISION " " + std::to_string(std::filesystem::file_size(file)) + " " +
         std::to_string(std::filesystem::last_write_time(file).time_since_epoch().count());
}

// What decides a row: as a hash, as files are long.
std::string key_of(const Experiment& experiment, const ScheduleChoice& choice, const json& others) {
  static const std::string of_program = program();
  json of = json::array({of_program, to_json(experiment), &choice - experiment.schedules.data(), others});
  const SampledModel* const model = model_of(experiment);
  if (model != nullptr && model->model_data.content) of.push_back(*model->model_data.content);
  if (experiment.run && !experiment.run->text.empty()) of.push_back(read_file(experiment.run->text));
  if (experiment.hardware) of.push_back(*experiment.hardware->cluster_data.content);
  if (!choice.file.empty()) of.push_back(read_file(choice.file));
  std::string bytes;
  json::to_msgpack(of, bytes);
  return hash_of(bytes);
}

}  // namespace

// A first line that says what the file is, then one line each, {key: row} behind its hash and a space. A line
// that its hash does not confirm is made again: a killed process leaves its last line unfinished.
constexpr const char* kFirstLine = "finished rows of stp";

FinishedRows::FinishedRows(const std::string& output) {
  std::error_code ignored;
  if (output.empty() || output == "-" || std::filesystem::is_character_file(output, ignored)) return;
  path_ = std::filesystem::path(output).lexically_normal().string();
  if (path_.ends_with('/')) path_.pop_back();
  path_ += ".rows";
  if (!std::filesystem::exists(path_, ignored)) return;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path_, ignored)) file.open(path_);  // a pipe would wait for its writer
  std::string line;
  std::getline(file, line);
  if (!file.is_open() || !std::string_view(kFirstLine).starts_with(line))
    throw InputError(path_, "", "is where finished rows are kept, and holds something else",
                     "move it, or name another output");
  while (std::getline(file, line)) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.substr(0, space) != hash_of(line.substr(space + 1))) continue;
    const json row = parse_json(line.substr(space + 1), path_);
    for (const auto& [key, value] : row.items()) rows_[key] = value;
  }
}

std::string FinishedRows::how_to_go_on() const {
  if (path_.empty())
    return "no row was kept; with --out FOLDER finished rows are, and the same command goes on from them";
  if (!std::filesystem::exists(path_)) return "";
  return "finished rows are in " + path_ + ", and the same command goes on from them";
}

json FinishedRows::find(const Experiment& experiment, const ScheduleChoice& choice,
                        const json& others) const {
  if (rows_.empty()) return {};
  const auto found = rows_.find(key_of(experiment, choice, others));
  return found == rows_.end() ? json() : found->second;
}

void FinishedRows::keep(const Experiment& experiment, const ScheduleChoice& choice, const json& others,
                        json row) {
  if (path_.empty()) return;
  std::ofstream file(path_, std::ios::app | std::ios::ate);
  if (file.tellp() == 0) file << kFirstLine;
  const std::string text = json_text(json{{key_of(experiment, choice, others), std::move(row)}});
  file << "\n" << hash_of(text) << " " << text << std::flush;
  if (file) return;
  remove();
  throw std::runtime_error(path_ +
                           ": could not be written completely (is the disk full, or file size limited?)");
}

InputError FinishedRows::refused(const InputError& error) const {
  if (!rows_.empty()) return error.with_remedy("rows that an earlier call finished stay in " + path_);
  remove();
  return error;
}

void FinishedRows::remove() const {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

}  // namespace stp
