#include "stp/cuda/libraries/gemm_winners.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "stp/base/error.h"

namespace stp::cuda {
namespace {

using nlohmann::json;

// The file, open and held against other processes until the end of the scope.
class Held {
 public:
  explicit Held(const std::string& file)
      : descriptor_(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX) != 0)
      throw InputError(
          "", "--gemm-winners",
          file + " cannot be opened: " + std::error_code(errno, std::generic_category()).message(),
          "name a file that can be written");
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { close(descriptor_); }

  /// By machine and GEMM; discarded() if it is something else.
  [[nodiscard]] json read() const {
    std::string text;
    std::array<char, 4096> part;
    lseek(descriptor_, 0, SEEK_SET);
    for (ssize_t count = 0; (count = ::read(descriptor_, part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<size_t>(count));
    if (text.empty()) return json::object();
    json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
    bool fits = all.is_object();
    for (const json& machine : fits ? all : json()) {
      fits = fits && machine.is_object();
      for (const json& algorithm : fits ? machine : json()) fits = fits && algorithm.is_string();
    }
    return fits ? all : json(json::value_t::discarded);
  }
  void write(const json& all) const {
    const std::string text = all.dump(1) + "\n";
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      std::fputs("stp: --gemm-winners: the file cannot be written; it is incomplete\n", stderr);
  }

 private:
  const int descriptor_;
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
