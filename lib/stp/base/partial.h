// Outputs during writing: each is beside its target, under its own name, and locked. The lock tells the
// remains of a killed process from the output of a running process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stp/base/file_descriptor.h"

namespace stp {

enum class PartialKind { file, folder };

/// Creates `path`, ".stp-partial-XXXXXX" in `folder`, and locks it until the returned file is closed. Returns
/// no file if that is impossible.
FileDescriptor make_partial(const std::filesystem::path& folder, std::filesystem::path& path,
                            PartialKind kind);

/// `mode`, such as 0666, without what the process's umask takes. Not while other threads make files.
unsigned umasked(unsigned mode);

/// Waits until the file, or the list of the folder's files, is on the disk. False: it may not be.
bool flush_to_disk(const std::filesystem::path& path);

/// Removes partial outputs in `folder` that no process has locked; returns their paths.
std::vector<std::string> remove_leftovers(const std::filesystem::path& folder);

}  // namespace stp
