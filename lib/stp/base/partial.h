// Outputs while they are being written: beside their target, under a name of their own, and locked, so that
// what a killed process left behind can be told from what a process is writing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stp {

/// An open, locked file or folder; the lock ends with the process at the latest.
class PartialLock {
 public:
  PartialLock() = default;
  explicit PartialLock(int file) : file_(file) {}
  PartialLock(PartialLock&& other) noexcept;
  PartialLock& operator=(PartialLock&& other) noexcept;
  ~PartialLock();
  explicit operator bool() const { return file_ >= 0; }
  [[nodiscard]] int file() const { return file_; }

 private:
  int file_ = -1;
};

enum class PartialKind { file, folder };

/// Creates `path`, ".stp-partial-XXXXXX" in `folder`, and locks it; no lock if that is not possible.
PartialLock make_partial(const std::filesystem::path& folder, std::filesystem::path& path, PartialKind kind);

/// Removes what make_partial() made in `folder` and no process has locked any more; returns the paths.
std::vector<std::string> remove_leftovers(const std::filesystem::path& folder);

}  // namespace stp
