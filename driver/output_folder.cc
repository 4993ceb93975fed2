#include "output_folder.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "interrupt.h"
#include "stp/base/data.h"
#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/report/chrome_trace.h"
#include "stp/report/record.h"

namespace stp {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string plain(const json& value) {
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

// "results/" names the folder "results".
fs::path without_slash(const fs::path& target) {
  const fs::path normal = target.lexically_normal();
  return normal.filename().empty() ? normal.parent_path() : normal;
}

// Adds the fields of a record's row: scalars, lists of scalars, and those of objects.
void add_values(const json& object, const std::string& prefix, std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      add_values(value, prefix + key + ".", values);
    } else if (!value.is_array()) {
      values[prefix + key] = value.is_null() ? "" : plain(value);
    } else if (std::ranges::none_of(value, [](const json& each) { return each.is_structured(); })) {
      values[prefix + key] = joined(value, plain, " ");
    }
  }
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::ostringstream cell;
  cell << std::quoted(text, '"', '"');
  return cell.str();
}

constexpr size_t kLongestOutput = 230;  // with what is added to it, a file system takes 255

void check_name(const fs::path& target, const char* flag) {
  if (target == "--") throw InputError(target, flag, "ends the options", "write ./-- if this is its name");
  if (without_slash(target).filename().string().size() > kLongestOutput)
    throw InputError(target, flag, "has a name of over " + std::to_string(kLongestOutput) + " bytes",
                     "shorten it");
}

void tell_leftovers(const fs::path& folder) {
  for (const std::string& removed : remove_leftovers(folder))
    std::fprintf(stderr, "stp: removed %s, which a killed run left half-written\n", removed.c_str());
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& target, Taken taken, const char* flag)
    : target_(without_slash(target)), taken_(taken), flag_(flag) {
  std::error_code ignored;
  if (taken_ == Taken::refuse && fs::exists(fs::symlink_status(target_, ignored)))
    throw InputError(target_, flag_, "exists, and results are never overwritten", "name a new folder");
  check_name(target, flag_);
  const fs::path parent = fs::absolute(target_).parent_path();
  tell_leftovers(parent);
  lock_ = make_partial(parent, partial_, PartialKind::folder);
  if (!lock_)
    throw InputError(target_, flag_, "cannot be created",
                     "check that its parent folder exists and may be written");
  // From here on, a signal or a closed output pipe must not leave the folder behind.
  note_interrupts();
  std::signal(SIGPIPE, SIG_IGN);
  fs::permissions(partial_, fs::perms(umasked(0777)));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

bool OutputFolder::rename_to(const fs::path& target) const {
  if (syscall(SYS_renameat2, AT_FDCWD, partial_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0)
    return true;
  // Some file systems (NFS) do not support this flag; a plain rename replaces neither a file nor a non-empty
  // folder.
  return (errno == EINVAL || errno == ENOSYS) && std::rename(partial_.c_str(), target.c_str()) == 0;
}

void OutputFolder::publish() {
  const auto exists = [](int error) { return error == EEXIST || error == ENOTEMPTY || error == ENOTDIR; };
  const std::string unnumbered = target_;
  bool named = rename_to(target_);
  for (int i = 2; !named && taken_ == Taken::number && exists(errno); ++i) {
    target_ = unnumbered + "-" + std::to_string(i);
    named = rename_to(target_);
  }
  const int error = errno;
  if (!named && exists(error))
    throw InputError(target_, flag_, "was created by another process", "name a new folder");
  const std::string partial = std::exchange(partial_, {});
  if (!named)
    throw std::runtime_error(target_.string() + ": cannot be renamed (" + std::strerror(error) +
                             "); the results are in " + partial);
}

void OutputFolder::publish_on_disk() {
  bool flushed = flush_to_disk(partial_);
  for (const auto& entry : fs::recursive_directory_iterator(partial_))
    flushed = flush_to_disk(entry.path()) && flushed;
  if (!flushed)
    throw std::runtime_error(target_.string() + ": could not be written completely (is the disk full?)");
  publish();
  flush_to_disk(fs::absolute(target_).parent_path());
}

void OutputFolder::publish_interrupted(const std::string& go_on) {
  if (fs::is_empty(partial_)) throw Interrupted(go_on.empty() ? "nothing was written" : go_on);
  target_ += "-interrupted";
  taken_ = Taken::number;
  publish();
  throw Interrupted("what was finished is in " + target_.string() + (go_on.empty() ? "" : "; " + go_on));
}

fs::path new_run_folder(const std::string& prefix) {
  const bool in_source_tree = fs::exists(data_path("CMakeLists.txt"));
  const fs::path runs =
      in_source_tree ? fs::path(data_path("results/runs")) : fs::current_path() / "results/runs";
  std::error_code failed;
  fs::create_directories(runs, failed);
  if (failed)
    throw InputError(runs, "", "cannot be created (" + failed.message() + ")", "name a folder with --out");
  const std::time_t now = std::time(nullptr);
  char name[64];
  std::tm utc{};
  std::strftime(name, sizeof name, "%Y%m%d-%H%M%S", gmtime_r(&now, &utc));
  return runs / (prefix + name);
}

fs::path unused_path(const fs::path& folder, const std::string& stem, const std::string& extension) {
  fs::path path = folder / (stem + extension);
  for (int i = 2; fs::exists(path); ++i) path = folder / (stem + "-" + std::to_string(i) + extension);
  return path;
}

void check_outputs(const std::vector<OutputFile>& files) {
  std::map<fs::path, const char*> flags;
  for (const auto& [path, flag] : files) {
    if (path.empty()) continue;
    std::error_code ignored;
    const fs::path whole = path == "-" ? fs::path(path) : fs::weakly_canonical(fs::absolute(path), ignored);
    if (fs::is_character_file(path, ignored)) continue;
    if (const auto [other, first] = flags.try_emplace(whole, flag); !first)
      throw InputError(path, flag, std::string("is the output of ") + other->second + " too",
                       "name another file");
    if (path == "-") continue;
    check_name(path, flag);
    if (fs::exists(fs::symlink_status(path, ignored)))
      throw InputError(path, flag, "exists, and results are never overwritten", "name another file");
    const fs::path folder = fs::absolute(path).parent_path();
    fs::path tried;
    const FileDescriptor lock = make_partial(folder, tried, PartialKind::file);
    if (!lock)
      throw InputError(path, flag, "cannot be created", "check that its folder exists and may be written");
    fs::remove(tried, ignored);
    tell_leftovers(folder);
  }
}

bool write_text(const std::string& path, const std::function<std::string()>& text) {
  if (path == "-")
    std::fputs(text().c_str(), stdout);
  else if (!path.empty())
    write_new_file(path, text());
  return path != "-";
}

bool write_record(const std::string& path, const json& record) {
  return write_text(path, [&] { return record_text(record); });
}

json csv_row(const Result& result) {
  json row = to_json(result);
  const RankResult& busiest = result.busiest_rank();
  row["pp_bubble_s"] = busiest.pp_bubble_s;
  row["tp_bubble_s"] = busiest.tp_bubble_s;
  if (const auto tokens = result.tokens_per_s_per_gpu()) row["tokens_per_s_per_gpu"] = *tokens;
  if (const auto needed = result.peak_total_gb()) {
    row["peak_total_gb"] = *needed;
    if (const auto margin = result.memory_margin_gb) {
      row["gpu_memory_gb"] = *needed + *margin;
    }
  }
  return row;
}

bool write_csv(const std::string& path, const json& rows) {
  return write_text(path, [&] {
    std::vector<std::map<std::string, std::string>> lines;
    std::set<std::string> fields;
    for (const json& row : rows) {
      add_values(row, "", lines.emplace_back());
      for (const auto& [field, value] : lines.back()) fields.insert(field);
    }
    std::string text;
    std::vector<std::string> columns(fields.begin(), fields.end());
    std::stable_partition(columns.begin(), columns.end(), [](const std::string& field) {
      return field == "name" || field == "schedule" || field == "model";
    });
    const auto write_line = [&](const auto& cell_of) {
      for (const std::string& field : columns)
        text += (field == columns.front() ? "" : ",") + csv_cell(cell_of(field));
      text += "\n";
    };
    write_line([](const std::string& field) { return field; });
    for (auto& line : lines) write_line([&](const std::string& field) { return line[field]; });
    return text;
  });
}

std::string kept_rows(size_t rows, size_t of, const std::vector<std::string>& files) {
  std::string names;
  for (const std::string& file : files)
    if (!file.empty() && file != "-") names += (names.empty() ? ", in " : " and ") + file;
  return std::to_string(rows) + " of " + std::to_string(of) + " rows are finished" + names;
}

std::string file_word(const json& row) {
  std::string word = plain(row.at("schedule"));
  if (row.at("model").is_string()) word += "-" + plain(row.at("model")) + "-s" + plain(row.at("seq"));
  word += "-tp" + plain(row.at("tp")) + "-pp" + plain(row.at("pp")) + "-m" + plain(row.at("microbatches"));
  // A schedule file may give its schedule any name, also one too long for a file.
  constexpr size_t kLongestWord = 130;
  if (word.size() > kLongestWord) word.resize(kLongestWord);
  for (char& c : word)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return word;
}

std::string ranks_text(const json& row) {
  std::string words;
  for (const Axis& axis : kAxes) {
    const json& ranks = row.at(axis.name);
    if (ranks == 1 && axis.ranks != &Strategy::tp && axis.ranks != &Strategy::pp) continue;
    words += axis.name + (" " + plain(ranks));
    if (axis.ranks == &Strategy::cp && row.contains("cp_method"))
      words += " by " + plain(row.at("cp_method"));
    words += ", ";
  }
  if (row.at("microbatch_size") != 1) words += "microbatch size " + plain(row.at("microbatch_size")) + ", ";
  return words + "m " + plain(row.at("microbatches"));
}

std::string heading(const json& row) {
  std::string words = plain(row.at("schedule"));
  if (row.at("model").is_string())
    words +=
        ", " + plain(row.at("model")) + " on " + plain(row.at("cluster")) + ", seq " + plain(row.at("seq"));
  return words + ", " + ranks_text(row);
}

void write_trace(const fs::path& path, const SimulatedRun& run, int ends) {
  const json row = to_json(run.result);
  std::ofstream file(path);
  write_chrome_trace(file, run.program, run.timeline, heading(row), row.at("time_unit"), ends);
  file.close();
  if (!file)
    throw std::runtime_error(path.string() + ": could not be written completely (is the disk full?)");
}

}  // namespace stp
