#include "stp/cuda/libraries/gemm_winners.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/base/partial.h"

namespace stp::cuda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Locks a folder, which others do for a moment only.
bool lock(int folder) {
  using namespace std::chrono_literals;
  for (const auto until = std::chrono::steady_clock::now() + 2s; flock(folder, LOCK_EX | LOCK_NB) != 0;
       std::this_thread::sleep_for(1ms))
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > until) return false;
  return true;
}

void ignore(std::string& file, const char* why) {
  std::fprintf(stderr, "stp: --gemm-winners: %s: %s, and is ignored; name another file\n", file.c_str(), why);
  file.clear();
}

// The file; its folder is locked against other processes until the end of the scope. If that is impossible,
// `file` is cleared, and there is none.
class Held {
 public:
  explicit Held(std::string& file)
      : file_(file),
        folder_(fs::absolute(file).parent_path()),
        lock_(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (lock_ && lock(lock_.get())) return;
    if (lock_ && errno == EWOULDBLOCK)
      ignore(file_, "is in a folder that another process keeps locked");
    else
      throw InputError("", "--gemm-winners",
                       folder_.string() +
                           " cannot be opened: " + std::error_code(errno, std::generic_category()).message(),
                       "name a file in a folder that exists");
  }

  /// By machine and GEMM; discarded() if it is something else.
  [[nodiscard]] json read() const {
    if (!fs::exists(file_)) return json::object();
    json all = json::parse(read_file(file_), nullptr, /*allow_exceptions=*/false);
    bool fits = all.is_object();
    for (const json& machine : fits ? all : json()) {
      fits = fits && machine.is_object();
      for (const json& algorithm : fits ? machine : json()) fits = fits && algorithm.is_string();
    }
    return fits ? all : json(json::value_t::discarded);
  }
  /// Whole or not at all.
  void write(const json& all) const {
    fs::path partial;
    const FileDescriptor made = make_partial(folder_, partial, PartialKind::file);
    std::error_code error;
    if (made && std::ofstream(partial) << all.dump(1) << std::endl) fs::rename(partial, file_, error);
    if (!made || error || fs::exists(partial)) {
      std::fprintf(stderr, "stp: --gemm-winners: %s cannot be written; it stays as it is\n", file_.c_str());
      fs::remove(partial, error);
    }
  }

 private:
  std::string& file_;
  const fs::path folder_;
  const FileDescriptor lock_;
};

std::string find_in(const json& all, const std::string& machine, const std::string& gemm) {
  return all.is_object() && all.contains(machine) ? all.at(machine).value(gemm, "") : "";
}

}  // namespace

GemmWinners::GemmWinners(std::string file, std::string machine)
    : file_(std::move(file)), machine_(std::move(machine)) {
  if (Held(file_).read().is_discarded()) ignore(file_, "is no list of GEMMs' kernels");
}

std::string GemmWinners::find(const std::string& gemm) {
  return file_.empty() ? "" : find_in(Held(file_).read(), machine_, gemm);
}

std::string GemmWinners::keep(const std::string& gemm, const std::string& before,
                              const std::string& algorithm) {
  if (file_.empty()) return algorithm;
  const Held held(file_);
  json all = held.read();
  if (file_.empty() || all.is_discarded()) return algorithm;  // locked, or someone else's by now
  if (std::string there = find_in(all, machine_, gemm); there != before) return there;
  all[machine_][gemm] = algorithm;
  held.write(all);
  return algorithm;
}

}  // namespace stp::cuda
