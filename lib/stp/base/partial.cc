#include "stp/base/partial.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

namespace stp {
namespace fs = std::filesystem;
namespace {

// compare.py uses the same prefix.
constexpr const char* kPrefix = ".stp-partial-";

constexpr int kMostTries = 100;

bool lock(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0; }

}  // namespace

FileDescriptor make_partial(const fs::path& folder, fs::path& path, PartialKind kind) {
  for (int tries = 0;; ++tries) {
    std::string name = (folder / (std::string(kPrefix) + "XXXXXX")).string();
    int file = -1;
    if (kind == PartialKind::file)
      file = mkostemp(name.data(), O_CLOEXEC);
    else if (mkdtemp(name.data()) != nullptr)
      file = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Until it is locked, another process may take it for a leftover and remove it. The loop then makes the
    // next.
    const bool removed = file < 0 && kind == PartialKind::folder && errno == ENOENT && fs::exists(folder);
    if (removed && tries < kMostTries) continue;  // some folders, as /proc, give this error for ever
    FileDescriptor made(file);
    path = made ? name : "";
    // On a file system without locks, nothing is removed.
    std::error_code ignored;
    if (!made || ((lock(file) || errno != EWOULDBLOCK) && fs::exists(path, ignored))) return made;
  }
}

unsigned umasked(unsigned mode) {
  const mode_t mask = umask(0);  // the only way to read the mask is to set it
  umask(mask);
  return mode & ~mask;
}

bool flush_to_disk(const fs::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file && (fsync(file.get()) == 0 || errno == EINVAL);  // some file systems cannot, of folders
}

std::vector<std::string> remove_leftovers(const fs::path& folder) {
  std::vector<std::string> removed;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const FileDescriptor left(open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (left && lock(left.get()) && fs::remove_all(entry.path(), ignored) > 0)
      removed.push_back(entry.path().string());
  }
  return removed;
}

}  // namespace stp
