// The folder of results, and the names of a result's files and figures.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "run_simulated.h"
#include "stp/base/partial.h"

namespace stp {

/// A hidden folder beside the target. It is renamed to the target when all is written, or removed. A result
/// folder is therefore complete or does not exist, and none is overwritten.
class OutputFolder {
 public:
  /// The action if the target exists.
  enum class Taken { refuse, number };  // number: "-2", "-3", … after its name
  /// InputError if `target` exists and `taken` is `refuse`, or if its parent folder is not writable.
  explicit OutputFolder(const std::filesystem::path& target, Taken taken = Taken::refuse);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// The folder to write to.
  [[nodiscard]] const std::filesystem::path& path() const { return partial_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  /// Renames the folder to the target, or to the next free number. Throws InputError if another process has
  /// created the target.
  void publish();

 private:
  [[nodiscard]] bool rename_to(const std::filesystem::path& target) const;  // false: errno says why

  std::filesystem::path target_, partial_;
  Taken taken_;
  PartialLock lock_;
};

/// `folder`/`stem``extension`, with "-2", "-3", … after the stem if that exists: different rows may have the
/// same file_word().
std::filesystem::path unused_path(const std::filesystem::path& folder, const std::string& stem,
                                  const std::string& extension);

/// Throws InputError that names `flag` if the output file `path` exists and is not a device such as
/// /dev/null. Accepts "-" (standard output) and "". Removes half-written files of killed runs in its folder,
/// and reports it.
void refuse_existing(const std::string& path, const char* flag);

/// Writes the record to the file `path`, to standard output if it is "-", or nowhere if it is "". Returns
/// false for "-": nothing else may then be printed there.
bool write_record(const std::string& path, const nlohmann::json& record);

// For a row of a result record:
/// Its part of a file name: "stp-llm-12.1b-s3072-tp4-pp4-m64". Only letters, digits, - _ and .
std::string file_word(const nlohmann::json& row);
/// Its title: "stp, llm-12.1b on a800, seq 3072, tp 4, pp 4, m 64".
std::string heading(const nlohmann::json& row);

/// Writes the Chrome trace of a simulated step, which plots/timelines.py draws.
void write_trace(const std::filesystem::path& path, const SimulatedRun& run);

}  // namespace stp
