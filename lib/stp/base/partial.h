// Outputs during writing: each is beside its target, under its own name, and locked. The lock tells the
// remains of a killed process from the output of a running process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stp {

/// An open file or folder. A lock on it ends with it, and with the process at the latest.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int file) : file_(file) {}
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();
  explicit operator bool() const { return file_ >= 0; }
  [[nodiscard]] int file() const { return file_; }

 private:
  int file_ = -1;
};

enum class PartialKind { file, folder };

/// Creates `path`, ".stp-partial-XXXXXX" in `folder`, and locks it. Returns no lock if that is impossible.
OpenFile make_partial(const std::filesystem::path& folder, std::filesystem::path& path, PartialKind kind);

/// Removes partial outputs in `folder` that no process has locked; returns their paths.
std::vector<std::string> remove_leftovers(const std::filesystem::path& folder);

}  // namespace stp
