// The folder of results, and the names of a result's files and figures.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "run_simulated.h"
#include "stp/base/partial.h"

namespace stp {

/// A hidden folder beside the target, renamed to the target when all is written, or removed. So a result
/// folder is complete or does not exist, and none is overwritten.
class OutputFolder {
 public:
  /// What to do if the target exists.
  enum class Taken { refuse, number };  // number: "-2", "-3", … after its name
  /// InputError if `target` exists, unless it may be numbered, or if its parent folder cannot be written to.
  explicit OutputFolder(const std::filesystem::path& target, Taken taken = Taken::refuse);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// The folder to write to.
  [[nodiscard]] const std::filesystem::path& path() const { return partial_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  /// Renames the folder to the target, or to the next number that is free; InputError if the target was
  /// created by another process.
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

/// InputError that names `flag` if the output file `path` exists and is not a device such as /dev/null; "-"
/// (standard output) and "" are accepted. Removes what killed runs left half-written in its folder, and says
/// so.
void refuse_existing(const std::string& path, const char* flag);

/// Writes the record to the file `path`, or nowhere if that is "", or to standard output if it is "-".
/// Returns false for "-": then nothing else may be printed there.
bool write_record(const std::string& path, const nlohmann::json& record);

// For a row of a result record:
/// Its part of a file name: "stp-llm-12.1b-s3072-tp4-pp4-m64", in letters, digits, - _ and . alone.
std::string file_word(const nlohmann::json& row);
/// The same as a title: "stp, llm-12.1b on a800, seq 3072, tp 4, pp 4, m 64".
std::string heading(const nlohmann::json& row);

/// Writes the Chrome trace of a simulated step, which plots/timelines.py draws.
void write_trace(const std::filesystem::path& path, const SimulatedRun& run);

}  // namespace stp
