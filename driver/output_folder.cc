#include "output_folder.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "interrupt.h"
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

void tell_leftovers(const fs::path& folder) {
  for (const std::string& removed : remove_leftovers(folder))
    std::fprintf(stderr, "stp: removed %s, which a killed run left half-written\n", removed.c_str());
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& target, Taken taken)
    : target_(without_slash(target)), taken_(taken) {
  std::error_code ignored;
  if (taken_ == Taken::refuse && fs::exists(fs::symlink_status(target_, ignored)))
    throw InputError(target_, "--out", "exists, and results are never overwritten", "name a new folder");
  const fs::path parent = fs::absolute(target_).parent_path();
  tell_leftovers(parent);
  lock_ = make_partial(parent, partial_, PartialKind::folder);
  if (!lock_)
    throw InputError(target_, "--out", "cannot be created",
                     "check that its parent folder exists and may be written");
  // From here on, a signal or a closed output pipe must not leave the folder behind.
  note_interrupts();
  std::signal(SIGPIPE, SIG_IGN);
  const mode_t masked = umask(0);  // the only way to read the mask is to set it
  umask(masked);
  fs::permissions(partial_, fs::perms(0777 & ~masked));
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
    throw InputError(target_, "--out", "was created by another process", "name a new folder");
  const std::string partial = std::exchange(partial_, {});
  if (!named)
    throw std::runtime_error(target_.string() + ": cannot be renamed (" + std::strerror(error) +
                             "); the results are in " + partial);
}

fs::path unused_path(const fs::path& folder, const std::string& stem, const std::string& extension) {
  fs::path path = folder / (stem + extension);
  for (int i = 2; fs::exists(path); ++i) path = folder / (stem + "-" + std::to_string(i) + extension);
  return path;
}

void refuse_existing(const std::string& path, const char* flag) {
  if (path.empty() || path == "-") return;
  std::error_code ignored;
  if (fs::is_character_file(path, ignored)) return;
  if (fs::exists(path, ignored))
    throw InputError(path, flag, "exists, and results are never overwritten", "name another file");
  tell_leftovers(fs::absolute(path).parent_path());
}

bool write_record(const std::string& path, const json& record) {
  if (path == "-") {
    std::fputs(record_text(record).c_str(), stdout);
    return false;
  }
  if (!path.empty()) write_new_file(path, record_text(record));
  return true;
}

std::string file_word(const json& row) {
  std::string word = plain(row.at("schedule"));
  if (row.at("model").is_string()) word += "-" + plain(row.at("model")) + "-s" + plain(row.at("seq"));
  word += "-tp" + plain(row.at("tp")) + "-pp" + plain(row.at("pp")) + "-m" + plain(row.at("microbatches"));
  // A schedule file may give its schedule any name.
  for (char& c : word)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return word;
}

std::string heading(const json& row) {
  std::string words = plain(row.at("schedule"));
  if (row.at("model").is_string())
    words +=
        ", " + plain(row.at("model")) + " on " + plain(row.at("cluster")) + ", seq " + plain(row.at("seq"));
  words += ", tp " + plain(row.at("tp")) + ", pp " + plain(row.at("pp"));
  if (row.at("cp") > 1) words += ", cp " + plain(row.at("cp"));
  if (row.contains("cp_method")) words += " by " + plain(row.at("cp_method"));
  if (row.at("dp") > 1) words += ", dp " + plain(row.at("dp"));
  return words + ", m " + plain(row.at("microbatches"));
}

void write_trace(const fs::path& path, const SimulatedRun& run) {
  const json row = to_json(run.result);
  std::ofstream file(path);
  write_chrome_trace(file, run.program, run.timeline, heading(row), row.at("time_unit"));
  file.close();
  if (!file)
    throw std::runtime_error(path.string() + ": could not be written completely (is the disk full?)");
}

}  // namespace stp
