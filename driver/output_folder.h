// Where results go, and what a result's files and pictures are called.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "run_simulated.h"

namespace stp {

/// A hidden folder beside the target, which takes the target's name when all is written, or disappears. So a
/// result folder is whole or not there, and none is ever overwritten.
class OutputFolder {
 public:
  /// InputError if `target` exists or its parent folder cannot be written to.
  explicit OutputFolder(const std::filesystem::path& target);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& path() const { return partial_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  /// Gives the folder its name; InputError if that has been taken meanwhile.
  void publish();

 private:
  std::filesystem::path target_, partial_;
};

/// `folder`/`stem``extension`, with "-2", "-3", … after the stem if that is taken: rows may differ in what
/// their file word does not say.
std::filesystem::path unused_path(const std::filesystem::path& folder, const std::string& stem,
                                  const std::string& extension);

/// InputError naming `flag` if `path`, which is to be written, exists and is no device such as /dev/null; "-"
/// (standard output) and "" never do.
void refuse_existing(const std::string& path, const char* flag);

/// Writes the record to the file `path`, unless that is "", or, if it is "-", to standard output. False in
/// the latter case: then nothing else may go there.
bool write_record(const std::string& path, const nlohmann::json& record);

// Of a row of a result record:
/// Its part of a file name: "stp-llm-12.1b-s3072-tp4-pp4-m64", in letters, digits, - _ and . alone.
std::string file_word(const nlohmann::json& row);
/// The same for people: "stp, llm-12.1b on a800, seq 3072, tp 4, pp 4, m 64".
std::string heading(const nlohmann::json& row);
/// What its times are counted in: "s", or "units" of the cost table.
std::string time_unit(const nlohmann::json& row);

/// Writes the Chrome trace of a simulated step, which analysis/timelines.py draws.
void write_trace(const std::filesystem::path& path, const SimulatedRun& run);

}  // namespace stp
