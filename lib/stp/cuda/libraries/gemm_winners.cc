#include "stp/cuda/libraries/gemm_winners.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "stp/base/error.h"
#include "stp/base/json_input.h"
#include "stp/base/partial.h"

namespace stp::cuda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The file; its folder is locked against other processes until the end of the scope.
class Held {
 public:
  explicit Held(const std::string& file)
      : file_(file),
        folder_(fs::absolute(file).parent_path()),
        lock_(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!lock_ || flock(lock_.get(), LOCK_EX) != 0)
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
  const fs::path file_, folder_;
  const FileDescriptor lock_;
};

std::string find_in(const json& all, const std::string& machine, const std::string& gemm) {
  return all.is_object() && all.contains(machine) ? all.at(machine).value(gemm, "") : "";
}

}  // namespace

GemmWinners::GemmWinners(std::string file, std::string machine)
    : file_(std::move(file)), machine_(std::move(machine)) {
  if (!Held(file_).read().is_discarded()) return;
  std::fprintf(stderr,
               "stp: --gemm-winners: %s: is no list of GEMMs' kernels, and is ignored; name another file\n",
               file_.c_str());
  file_.clear();
}

std::string GemmWinners::find(const std::string& gemm) const {
  return file_.empty() ? "" : find_in(Held(file_).read(), machine_, gemm);
}

std::string GemmWinners::keep(const std::string& gemm, const std::string& before,
                              const std::string& algorithm) const {
  if (file_.empty()) return algorithm;
  const Held held(file_);
  json all = held.read();
  if (all.is_discarded()) return algorithm;  // someone else's by now
  if (std::string there = find_in(all, machine_, gemm); there != before) return there;
  all[machine_][gemm] = algorithm;
  held.write(all);
  return algorithm;
}

}  // namespace stp::cuda
